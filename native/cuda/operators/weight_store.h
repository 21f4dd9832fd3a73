// The repacked weights of one weights file, which all sessions over it share.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "device/cuda_device.h"
#include "kernels.h"
#include "scratch.h"

namespace pilotfish::cuda {

class WeightStore : public CudaWeights {
 public:
  // Of num_bytes together, at most. What `lender` has already is not repacked again; nullptr: nobody lends.
  WeightStore(uint64_t num_bytes, const WeightStore* lender, cudaStream_t stream)
      : planned_bytes_(num_bytes), lender_(lender), stream_(stream) {}
  WeightStore(WeightStore&&) = delete;
  ~WeightStore() override;

  void end_load() override;

  // The copy of a packed weight in host memory, made when it is first asked for; an embedding that is the output head
  // too has one.
  const void* repacked(const LowbitShape& shape, const void* packed);
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
  size_t num_left_ = 0;  // bytes behind next_
  Scratch staging_;      // packed weights on their way
};

}  // namespace pilotfish::cuda
