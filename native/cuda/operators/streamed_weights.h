// Repacked weights that stay in page-locked host memory and come to the device when a pass needs them, by copies beside
// the kernels (device/weight_stream.h has their order). In a recording the copies are a branch of the graph that joins
// it again before the pass ends.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "device/cuda_device.h"
#include "device/weight_stream.h"
#include "kernels.h"

namespace pilotfish::cuda {

class StreamedWeights : private WeightCopies {
 public:
  StreamedWeights(const CudaWeightRoom& room, cudaStream_t stream);
  StreamedWeights(StreamedWeights&&) = delete;
  ~StreamedWeights() override;

  bool has(const void* packed) const { return hosted_.contains(packed); }
  // A linear that reads the weight, whose packed bytes are at `staged` on the device; its number.
  size_t add(const LowbitShape& shape, const void* packed, const void* staged);
  // Where the weight of the linear is once the stream has come to here.
  const void* acquire(size_t reader) { return slots_[order_.acquire(reader)]; }
  void release() { order_.release(); }

 private:
  struct Hosted {
    void* data = nullptr;  // page-locked
    size_t num_bytes = 0;
  };

  void load(size_t slot, size_t reader) override;
  void start(size_t slot, size_t reader) override;
  void wait(size_t slot) override;
  void free() noexcept;

  const cudaStream_t stream_;
  const uint64_t slot_bytes_;
  std::map<const void*, Hosted> hosted_;  // by the packed weight
  std::vector<const Hosted*> readers_;
  WeightStream order_{*this};
  cudaStream_t copies_ = nullptr;
  std::array<cudaEvent_t, WeightStream::kNumSlots> used_{}, copied_{};
  std::array<std::byte*, WeightStream::kNumSlots> slots_{};  // one allocation
  void* marker_ = nullptr;                                   // behind them, see wait()
};

}  // namespace pilotfish::cuda
