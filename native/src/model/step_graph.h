// The graph of a head with a decoder layer: rows of tokens and features through it, over a cache of its own. Knows one
// pass; which rows it runs is the business of the drafter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memory/kv_cache.h"
#include "memory/pages.h"
#include "model/head.h"
#include "model/model.h"
#include "model/ort.h"

namespace pilotfish {

class StepGraph {
 public:
  // Runs one row; a graph that is not what the manifest says fails here. The head must outlive it.
  StepGraph(const Head& head, const ModelLimits& limits);
  StepGraph(StepGraph&&) = delete;

  static uint64_t num_bytes(const HeadEntry& entry, uint64_t max_rows, uint64_t max_outputs) noexcept {
    return sizeof(float) *
           (max_rows * entry.state_size + max_outputs * (uint64_t(entry.state_size) + entry.num_logits));
  }
  static uint64_t cache_bytes_per_token(const HeadCacheEntry& cache) noexcept;

  const ModelLimits& limits() const noexcept { return limits_; }
  // [state_size] of a row of the next pass, to be filled in.
  std::span<float> features(int32_t row) const noexcept;
  // Writes the rows' keys and values into the cache and returns the logits of the last num_outputs rows.
  Logits forward(const Pass& pass);
  // [state_size] of one of these rows, valid until the next pass.
  std::span<const float> next_features(int32_t output) const noexcept;

  KvCache& cache() noexcept { return *cache_; }

 private:
  // One input or output: its memory, and a tensor for each number of rows, made when first used.
  struct Port {
    const char* name;
    ONNXTensorElementDataType type;
    int32_t num_columns;  // 0: a number a row
    Pages data;
    std::vector<OrtValuePtr> tensors;
  };

  Port port(const char* name, ONNXTensorElementDataType type, int32_t num_columns, int32_t max_rows) const;
  const OrtValue* tensor(Port& port, int32_t num_rows);
  void bind_input(Port& port, int32_t num_rows);
  void bind_output(Port& port, int32_t num_rows);
  template <typename Element>
  static std::span<Element> elements(const Port& port) noexcept;

  const Ort& ort_;
  const ModelLimits limits_;
  const int32_t state_size_;
  const int32_t num_logits_;
  Port ids_, positions_, tree_mask_, features_;  // [max_rows]
  Port seq_starts_, context_lens_, block_table_;
  Port output_rows_, logits_, next_features_;  // [max_outputs]
  OrtSessionPtr session_;
  OrtIoBindingPtr binding_;
  std::optional<KvCache> cache_;
  int32_t bound_rows_ = -1;
  int32_t bound_outputs_ = -1;
  bool bound_causal_ = false;
};

}  // namespace pilotfish
