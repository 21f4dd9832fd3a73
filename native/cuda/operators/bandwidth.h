// How fast the device reads memory.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels.h"

namespace pilotfish::cuda {

// Bytes a second of the best of a few kernels that do nothing but read, over memory several times as large as L2.
// Throws; PF_OUT_OF_MEMORY where there is no room.
double measure_read_bandwidth(const DeviceLimits& limits, cudaStream_t stream);

}  // namespace pilotfish::cuda
