#include "bandwidth.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "checked.h"

namespace pilotfish::cuda {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr size_t kLeastCaches = 4;  // fewer, and L2 answers for a part
constexpr int kRepeats = 5;
constexpr double kSecondsPerMs = 1e-3;

class Event {
 public:
  Event() { PILOTFISH_CUDA_CHECK(cudaEventCreate(&event_)); }
  Event(Event&&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

struct FreeDevice {
  void operator()(void* memory) const noexcept { cudaFree(memory); }
};

// A quarter of what is free, so that others keep room.
size_t num_bytes_to_read(const DeviceLimits& limits) {
  size_t free_bytes = 0, total_bytes = 0;
  PILOTFISH_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  const size_t num_bytes = std::min(kMostBytes, free_bytes / 4);
  const size_t least = kLeastCaches * limits.cache_bytes;
  if (num_bytes < least) {
    fail(PF_OUT_OF_MEMORY, "measuring the GPU's bandwidth takes ", 4 * least, " free bytes, there are ", free_bytes);
  }
  return num_bytes;
}

}  // namespace

double measure_read_bandwidth(const DeviceLimits& limits, cudaStream_t stream) {
  const size_t num_bytes = num_bytes_to_read(limits);
  void* memory = nullptr;
  PILOTFISH_CUDA_CHECK(cudaMalloc(&memory, num_bytes + sizeof(uint32_t)));
  const std::unique_ptr<void, FreeDevice> owner(memory);
  auto* const found = reinterpret_cast<uint32_t*>(static_cast<std::byte*>(memory) + num_bytes);
  PILOTFISH_CUDA_CHECK(cudaMemsetAsync(memory, 0, num_bytes + sizeof(uint32_t), stream));
  const Event start, end;
  float best_ms = std::numeric_limits<float>::infinity();
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    PILOTFISH_CUDA_CHECK(cudaEventRecord(start.get(), stream));
    PILOTFISH_CUDA_CHECK(launch_read(memory, num_bytes, found, limits, stream));
    PILOTFISH_CUDA_CHECK(cudaEventRecord(end.get(), stream));
    PILOTFISH_CUDA_CHECK(cudaEventSynchronize(end.get()));
    float ms = 0;
    PILOTFISH_CUDA_CHECK(cudaEventElapsedTime(&ms, start.get(), end.get()));
    best_ms = std::min(best_ms, ms);
  }
  return static_cast<double>(num_bytes) / (kSecondsPerMs * best_ms);
}

}  // namespace pilotfish::cuda
