// The low-bit linear whose weight lies in shared memory as a whole: lowbit_resident.cu.
#pragma once

#include "kernels.h"

namespace pilotfish::cuda {

/// Whether all blocks of the weight fit on the device at once, with room for the next linear's.
bool fits_resident(const LowbitShape& shape, const DeviceLimits& limits);

/// Into how many slices of chunks, summed apart and added in order, a resident linear cuts K: slice i has the chunks
/// from i num_chunks / slices on.
inline int resident_slices(int num_chunks) {
  constexpr int kMostSlices = 16;
  const int chunks = (num_chunks + kMostSlices - 1) / kMostSlices;
  return (num_chunks + chunks - 1) / chunks;
}

/// As launch_lowbit_linear(), whose checks have been made.
cudaError_t launch_resident_linear(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream);

}  // namespace pilotfish::cuda
