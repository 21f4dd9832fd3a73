// Opens libpilotfish_cuda.
#pragma once

#include <memory>

#include "cuda_device.h"

namespace pilotfish {

// The device of that index. Throws PF_UNSUPPORTED where this build has no CUDA kernels, or there is no driver, no such
// device, or a device of an architecture that the build lacks.
std::shared_ptr<CudaDevice> open_cuda_device(int32_t index);

}  // namespace pilotfish
