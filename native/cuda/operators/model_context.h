// What the operators of one session share: their scratch memory on the device, and weights with other sessions.
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
#include "scratch.h"
#include "weight_store.h"

namespace pilotfish::cuda {

// Sums on their way between thread blocks, which are there within a kernel only: all models of a stream share them.
struct PartialSums {
  Scratch attention{0xFF}, linear{0xFF};
};

class ModelContext {
 public:
  // `partials` and `weights` outlive the context.
  ModelContext(const DeviceLimits& limits, const CudaPassLimits& pass, cudaStream_t stream, PartialSums& partials,
               WeightStore& weights)
      : limits_(limits), pass_(pass), stream_(stream), weights_(weights), partials_(partials) {}
  ModelContext(ModelContext&&) = delete;
  ~ModelContext();

  const DeviceLimits& limits() const noexcept { return limits_; }
  const CudaPassLimits& pass() const noexcept { return pass_; }

  WeightStore& weights() noexcept { return weights_; }

  // Of the passes from now on (cuda_device.h: CudaOperators).
  void bound_sequence_rows(int most_rows) noexcept { most_sequence_rows_ = most_rows; }
  int most_sequence_rows() const noexcept { return most_sequence_rows_; }

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
  // Where to write the copy of a value; all null if nobody asked, or for more than the operator can do: a copy, one for
  // a norm, or such a one in kInputCopies places. So it is where the value is larger than the linear's own input may
  // be: that linear fails, and there is no room for the copy.
  enum class Can { kCopy, kNorm, kCopies };
  struct Size {
    int64_t num_rows;
    int num_columns;
  };
  NextInput begin_copy(const std::string& value, Can can, const Size& size);

  struct Copy {
    const void* halves = nullptr;  // nullptr: there is none for this linear
    InputNorm norm = {};
    int stride = 0;  // NextInput::copy_stride
  };
  Copy copy_of(const std::string& value, const float* norm_weight, float epsilon) const;

  // Of the linear that is enqueued now.
  Turn next_turn() noexcept { return turn_ = turn_ == Turn::kFirst ? Turn::kSecond : Turn::kFirst; }
  // Whether all weights fit into half of the cache.
  Passes passes() const noexcept {
    return weights_.num_bytes() > limits_.cache_bytes / 2 ? Passes::kThroughCache : Passes::kIntoCache;
  }

 private:
  const DeviceLimits limits_;
  const CudaPassLimits pass_;
  const cudaStream_t stream_;
  WeightStore& weights_;
  Scratch halves_, prefill_, queries_;
  PartialSums& partials_;
  struct Request {
    const float* norm_weight;  // as given
    float* scaled_weight;      // times a power of two that makes its largest entry about 1: f16 holds the copy
    float unscale;
    int num_columns;
  };
  std::map<std::string, Request> requests_;
  int normed_columns_ = 0;  // of all copies with a norm: their sums of squares share one stride
  // Written in turns: an operator may read one while it writes the other.
  struct Slot {
    std::string value;
    int copy_stride = 0;
    Scratch halves, squares;
  };
  std::array<Slot, 2> slots_;
  size_t last_slot_ = 0;
  Turn turn_ = Turn::kSecond;
  int most_sequence_rows_ = 0;
};

}  // namespace pilotfish::cuda
