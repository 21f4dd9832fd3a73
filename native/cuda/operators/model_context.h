// What the operators of one session share: repacked weights and scratch memory on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "device/cuda_device.h"
#include "kernels.h"

namespace pilotfish::cuda {

// Device memory that only grows, while a session is created. What it held is lost.
class Scratch {
 public:
  // `byte`: what fresh memory is filled with.
  explicit Scratch(int byte = 0) : byte_(byte) {}
  Scratch(Scratch&&) = delete;
  ~Scratch();

  void reserve(size_t num_bytes, cudaStream_t stream);
  void clear(cudaStream_t stream);
  void* data() const noexcept { return data_; }
  size_t num_bytes() const noexcept { return num_bytes_; }

 private:
  int byte_;
  void* data_ = nullptr;
  size_t num_bytes_ = 0;
};

// Sums on their way between thread blocks, which are there within a kernel only: all models of a stream share them.
struct PartialSums {
  Scratch attention{0xFF}, linear{0xFF};
};

class ModelContext {
 public:
  // `partials` outlives the context.
  ModelContext(const DeviceLimits& limits, const CudaPassLimits& pass, cudaStream_t stream, PartialSums& partials);
  ModelContext(ModelContext&&) = delete;
  ~ModelContext();

  const DeviceLimits& limits() const noexcept { return limits_; }
  const CudaPassLimits& pass() const noexcept { return pass_; }

  // The repacked copy of a packed weight in host memory, made when it is first asked for; an embedding that is the
  // output head too has one.
  const void* weights(const LowbitShape& shape, const void* packed);

  // Room for what an operator needs, and the memory.
  void reserve_halves(int num_columns);
  void reserve_linear(const LowbitPlan& plan);
  void reserve_prefill(const LowbitShape& shape);
  void reserve_attention(const AttentionShape& shape);
  void* halves() const noexcept { return halves_.data(); }
  float* linear_partials() const noexcept { return static_cast<float*>(partials_.linear.data()); }
  void* prefill_scratch() const noexcept { return prefill_.data(); }
  void* queries() const noexcept { return queries_.data(); }
  float* attention_partials() const noexcept { return static_cast<float*>(partials_.attention.data()); }

  // When a linear is made it asks for a copy of its input by name; the operator whose output has that name writes it
  // beside the output (kernels.h: NextInput), and it lasts until the copy after the next. `norm_weight`: the linear's,
  // in device memory, or nullptr. One kind of copy a value: a linear that needs another makes its input itself.
  void want_copy(const std::string& value, int num_columns, const float* norm_weight);
  // Where to write the copy of a value; all null if nobody asked, or for more than the operator can do.
  enum class Can { kCopy, kNorm };
  NextInput begin_copy(const std::string& value, Can can);

  struct Copy {
    const void* halves = nullptr;  // nullptr: there is none for this linear
    InputNorm norm = {};
  };
  Copy copy_of(const std::string& value, const float* norm_weight, float epsilon) const;

  // Of the linear that is enqueued now.
  Turn next_turn() noexcept { return turn_ = turn_ == Turn::kFirst ? Turn::kSecond : Turn::kFirst; }
  // Whether all weights fit into half of the cache.
  Passes passes() const noexcept {
    return weight_bytes_ > limits_.cache_bytes / 2 ? Passes::kThroughCache : Passes::kIntoCache;
  }

  uint64_t device_bytes() const noexcept;
  // Frees what only repacking needed.
  void end_load() { staging_.clear(stream_); }

 private:
  // Memory for a weight. They share one allocation: one each would round every one up to 2 MiB.
  void* take(size_t num_bytes);

  const DeviceLimits limits_;
  const CudaPassLimits pass_;
  const cudaStream_t stream_;
  std::map<const void*, void*> weights_;
  uint64_t weight_bytes_ = 0;
  std::vector<void*> weight_memory_;  // more than one only where pass_.weight_bytes was too few
  std::byte* next_weight_ = nullptr;
  size_t num_left_ = 0;  // bytes behind next_weight_
  Scratch staging_;      // packed weights on their way
  Scratch halves_, prefill_, queries_;
  PartialSums& partials_;
  struct Request {
    const float* norm_weight;  // as given
    float* scaled_weight;      // times a power of two that makes its largest entry about 1: f16 holds the copy
    float unscale;
  };
  std::map<std::string, Request> requests_;
  int normed_columns_ = 0;  // of all copies with a norm: their sums of squares share one stride
  // Written in turns: an operator may read one while it writes the other.
  struct Slot {
    std::string value;
    Scratch halves, squares;
  };
  std::array<Slot, 2> slots_;
  size_t last_slot_ = 0;
  Turn turn_ = Turn::kSecond;
};

}  // namespace pilotfish::cuda
