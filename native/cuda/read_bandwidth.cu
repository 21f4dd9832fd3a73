// How fast this device reads memory: what a pass over weights could reach at best. For `pilotfish doctor`.
#include "kernels.h"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocksPerSm = 4;
constexpr int kVectors = 8;  // loads in flight a thread

// Every thread reads its vectors of each stride; what it found keeps the loads alive.
__global__ void __launch_bounds__(kThreads) read_kernel(const uint4* data, size_t num_vectors, uint32_t* found) {
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  uint32_t bits = 0;
  for (size_t first = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; first < num_vectors;
       first += kVectors * stride) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const size_t index = first + i * stride;
      if (index >= num_vectors) continue;
      const uint4 vector = __ldcs(data + index);
      bits |= vector.x | vector.y | vector.z | vector.w;
    }
  }
  if (bits != 0) atomicOr(found, bits);
}

}  // namespace

cudaError_t launch_read(const void* data, size_t num_bytes, uint32_t* found, const DeviceLimits& limits,
                        cudaStream_t stream) {
  read_kernel<<<limits.num_sms * kBlocksPerSm, kThreads, 0, stream>>>(static_cast<const uint4*>(data),
                                                                      num_bytes / sizeof(uint4), found);
  return cudaGetLastError();
}

}  // namespace pilotfish::cuda
