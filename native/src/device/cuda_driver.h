// NVIDIA's driver, asked without CUDA's runtime and before any memory is taken: is it there, what does it run, which
// devices does it have. Knows nothing about pilotfish's kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/platform/library.h"

namespace pilotfish {

struct CudaDriverDevice {
  std::string name;
  int32_t compute_capability;  // 90 is 9.0
};

struct CudaDriver {
  int32_t version;  // 13000: CUDA 13.0, the newest that it runs
  std::vector<CudaDriverDevice> devices;
};

// Loads `library`, which stays loaded. Throws PF_UNSUPPORTED, naming what is missing and the remedy: there is no
// driver, it cannot be started, or it sees no device.
CudaDriver read_cuda_driver(const std::string& library = platform::cuda_driver_name());

// "13.0" of 13000.
std::string cuda_version_text(int32_t version);

}  // namespace pilotfish
