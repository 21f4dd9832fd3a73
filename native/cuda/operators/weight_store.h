// The repacked weights of one weights file, which all sessions over it share.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "device/cuda_device.h"
#include "kernels.h"
#include "scratch.h"
#include "streamed_weights.h"

namespace pilotfish::cuda {

class WeightStore : public CudaWeights {
 public:
  // What `lender` has already is not repacked again; nullptr: nobody lends.
  WeightStore(const CudaWeightRoom& room, const WeightStore* lender, cudaStream_t stream);
  WeightStore(WeightStore&&) = delete;
  ~WeightStore() override;

  void end_load() override;

  // The copy of a packed weight in host memory, made when it is first asked for; an embedding that is the output head
  // too has one.
  const void* repacked(const LowbitShape& shape, const void* packed);

  // The weight of a linear, which may be one that stays in host memory.
  class ForLinear {
   public:
    // Before the linear is enqueued: where its weight is.
    const void* acquire() const { return streamed_ ? streamed_->acquire(reader_) : resident_; }
    // After it was enqueued, or had no rows: whoever acquires must release.
    void release() const {
      if (streamed_) streamed_->release();
    }

   private:
    friend WeightStore;
    const void* resident_ = nullptr;
    StreamedWeights* streamed_ = nullptr;
    size_t reader_ = 0;
  };
  ForLinear for_linear(const LowbitShape& shape, const void* packed);
  // Of all repacked weights, on the device or not.
  uint64_t num_bytes() const noexcept { return num_bytes_; }

 private:
  const void* find(const void* packed) const;
  // Memory for a weight. They share one allocation: one each would round every one up to 2 MiB.
  void* take(size_t num_bytes);

  const uint64_t planned_bytes_;
  const WeightStore* const lender_;
  const cudaStream_t stream_;
  std::map<const void*, void*> weights_;  // by the packed weight
  uint64_t num_bytes_ = 0;
  std::vector<void*> memory_;  // more than one only where planned_bytes_ was too few
  std::byte* next_ = nullptr;
  size_t num_left_ = 0;                        // bytes behind next_
  Scratch staging_;                            // packed weights on their way
  std::unique_ptr<StreamedWeights> streamed_;  // nullptr: all are on the device
};

}  // namespace pilotfish::cuda
