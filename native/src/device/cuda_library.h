// Opens libpilotfish_cuda.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/cuda_build.h"
#include "device/cuda_device.h"

namespace pilotfish {

struct CudaLibraries {
  std::string kernels;  // libpilotfish_cuda, beside this library
  std::string driver;   // wherever the system has it
};
CudaLibraries default_cuda_libraries();

// What the kernels were built for. Throws PF_UNSUPPORTED where this build has none.
CudaBuild read_cuda_build(const CudaLibraries& libraries = default_cuda_libraries());

// The device of that index, as the driver counts. Throws PF_UNSUPPORTED where this build has no CUDA kernels, or there
// is no driver or one too old, no such device, or one of an architecture that the build lacks.
std::shared_ptr<CudaDevice> open_cuda_device(int32_t index, const CudaLibraries& libraries = default_cuda_libraries());

}  // namespace pilotfish
