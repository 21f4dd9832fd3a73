// One model of the bundle, or the decoder layer of a head: a session over buffers and cache pages of its own. Knows one
// pass; what a pass is for is the business of prefill, draft and verify.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bundle/bundle_files.h"
#include "bundle/manifest.h"
#include "bundle/weights_file.h"
#include "device/cuda_device.h"
#include "memory/float_rows.h"
#include "model/hidden_rows.h"
#include "model/kv_cache.h"
#include "model/ort.h"
#include "model/pass_buffers.h"
#include "model/row_port.h"
#include "model/session.h"
#include "model/weights.h"

namespace pilotfish {

class Head;

// Logits of the asked rows of a pass, valid until the model's next pass.
struct Logits {
  const float* data;  // [num_rows, width]
  int32_t num_rows;
  int32_t width;
  bool is_one_row = false;                    // the first row stands for all
  std::span<const int32_t> row_of = {};       // which row stands for each; empty: each for itself
  std::span<const LikelyRow> likeliest = {};  // [num_rows] in place of `data`, where nothing else was asked for

  std::span<const float> row(int32_t index) const { return {data + size_t(place_of(index)) * width, size_t(width)}; }
  // Of row `first` and those behind it.
  Logits from(int32_t first) const {
    Logits rows = *this;
    rows.data += size_t(first) * width;
    rows.num_rows -= first;
    return rows;
  }
  const LikelyRow& likely_row(int32_t index) const { return likeliest[place_of(index)]; }

 private:
  int32_t place_of(int32_t index) const { return is_one_row ? 0 : row_of.empty() ? index : row_of[index]; }
};

// The rows of one of the sequences of a pass. On a device, rows behind those of the last sequence are padding.
struct PassSequence {
  int32_t num_rows;
  std::span<const int32_t> block_table;
  int32_t context;
};

struct Pass {
  std::span<const int32_t> ids;                  // [num_rows]
  std::span<const int32_t> positions;            // [num_rows]; empty: context, context + 1, ...
  std::span<const uint64_t> tree_mask;           // [num_rows]; empty: causal
  std::span<const int32_t> block_table;          // covers context + num_rows tokens
  int32_t context;                               // tokens in the cache before this pass
  int32_t num_outputs;                           // the last rows, whose logits are wanted
  int32_t num_hidden = 0;                        // the last rows, whose residual streams are wanted
  std::span<const PassSequence> sequences = {};  // several, in place of block_table and context; they need positions
  std::span<const int32_t> output_rows = {};     // num_outputs of them, ascending, where they are not the last ones
};

struct ModelLimits {
  int32_t num_threads;
  int32_t max_rows;
  int32_t max_outputs;
  int32_t max_hidden;  // 0: the streams that the graph could give out are not bound
  int32_t max_context;
  int32_t num_blocks;
  int32_t block_size;
  int32_t max_seqs = 1;            // in one pass
  uint64_t most_weight_bytes = 0;  // on a device, where some weights are streamed to it; 0: all are there
};

// The same in the words of a device.
CudaPassLimits cuda_limits(const ModelLimits& limits) noexcept;

class Model {
 public:
  // Reads the graph and builds the session, while the weights may still be coming; finish_load() is to follow. The
  // model keeps `ort` alive, beside the other models. `device` is nullptr on the CPU.
  Model(std::shared_ptr<const Ort> ort, std::shared_ptr<CudaDevice> device, const BundleSource& source,
        const ModelEntry& entry, std::unique_ptr<WeightsFile> weights, const ModelLimits& limits);
  // The step of a head that has a decoder layer (GRAPH.md), which must outlive it. Its rows have features() too.
  Model(const Head& head, const ModelLimits& limits);
  Model(Model&&) = delete;

  int32_t num_logits() const noexcept { return num_logits_; }
  // The token of each logit, ascending; empty: logit j is about token j.
  std::span<const int32_t> logit_ids() const noexcept { return logit_ids_; }
  int32_t max_positions() const noexcept { return max_positions_; }
  const ModelLimits& limits() const noexcept { return limits_; }

  // Writes the rows' keys and values into the cache and returns the logits of the last num_outputs rows. `meanwhile` is
  // called once the pass has been started, which on a device is before it has ended.
  Logits forward(const Pass& pass, const std::function<void()>& meanwhile = {});
  // Residual streams of the last num_hidden rows of the last pass, which must have asked for some.
  Hidden hidden() const noexcept { return hidden_->view(); }
  // Of a head's step: a row's input beside its token, and what it leaves behind for the row after it, by output.
  FloatRows& features() noexcept { return features_->in; }
  const FloatRows& next_features() const noexcept { return features_->out; }
  // Rows of the next pass go on from what outputs of the last one left behind: from the first num_rows ones, or from
  // those whose numbers the device has. Nothing is done but for a step.
  void carry_on(int32_t num_rows);
  void carry_on(const int32_t* device_rows, int32_t num_rows);

  KvCache& cache() noexcept { return *cache_; }
  const Weights& weights() const noexcept { return *weights_; }
  // Waits until the weights are there and checked, and runs a pass.
  void finish_load();
  // Frees what only loading needed, once the head is loaded that shares its tensors.
  void end_load() { weights_->end_load(); }

  // What follows is for rounds on a device, which enqueue passes whose inputs kernels before them write.
  PassInputs device_inputs() const noexcept;
  float* device_logits() noexcept { return static_cast<float*>(buffers_.bound_logits()); }
  // Sets the inputs of a pass in host memory; upload() enqueues their copy to the device.
  void set_inputs(const Pass& pass);
  void upload() const { buffers_.upload(); }
  // forward() without waiting, whose logits stay there.
  void start(const Pass& pass);
  // forward() so many times, one after the other, whose logits stay there; then waits for the device.
  void forward_on_device(const Pass& pass, int32_t num_times);
  // Enqueues the copy of so many outputs' logits, for the host to read once the device is through.
  Logits download(int32_t first_output, int32_t num_outputs);
  // Enqueues a pass over the inputs on the device. Its outputs' logits go to row first_output and on.
  void enqueue(const PassShape& shape, int32_t first_output = 0);

 private:
  // What a head's step has beside a model's inputs and outputs.
  struct Features {
    FloatRows in, out;
    RowPort in_port, out_port;
  };

  struct Loaded {
    std::unique_ptr<Weights> weights;
    std::unique_ptr<Session> session;
  };

  static Loaded load(std::shared_ptr<const Ort> ort, std::shared_ptr<CudaDevice> device, const BundleSource& source,
                     const ModelEntry& entry, std::unique_ptr<WeightsFile> weights, const ModelLimits& limits);
  Model(const ModelEntry& entry, const ModelLimits& limits, Loaded loaded);
  RowPort input(const char* name, ONNXTensorElementDataType type, const void* host, int32_t max_rows,
                int32_t num_columns = 0);
  void set_sequence(int32_t index, const PassSequence& sequence);
  void bind(const PassShape& shape, int32_t first_output = 0);
  void try_pass();

  const ModelLimits limits_;
  const int32_t num_logits_;
  const std::vector<int32_t> logit_ids_;
  const int32_t max_positions_;
  const std::unique_ptr<Weights> weights_;  // nullptr: a head's
  const std::unique_ptr<Session> session_;
  PassBuffers buffers_;
  RowPort ids_, positions_, seq_starts_, context_lens_, block_table_, tree_mask_, output_rows_, logits_;
  std::optional<HiddenRows> hidden_;
  std::optional<Features> features_;
  std::optional<KvCache> cache_;
};

}  // namespace pilotfish
