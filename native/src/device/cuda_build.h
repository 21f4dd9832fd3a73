// What libpilotfish_cuda was built for, read before anything of CUDA runs; and whether a driver and a device fit it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/cuda_driver.h"

namespace pilotfish {

// A constant that libpilotfish_cuda exports.
struct CudaBuild {
  uint32_t interface_version;  // of cuda_device.h
  int32_t cuda_version;        // of the toolkit: 13000 is 13.0
  const char* architectures;   // "80, 86, 90": those with device code; the last one is there as PTX too
};
inline constexpr const char* kCudaBuildSymbol = "pilotfish_cuda_build";

// Whether code for these architectures runs on a device: its own or an earlier minor revision of its major one (Orin's
// 87 needs its own), or compiled from the last one's PTX.
bool runs_on(std::string_view architectures, int32_t compute_capability);

// Throws PF_UNSUPPORTED where the driver is too old for the build, there is no device `index`, or the build has no code
// for it; the message says what there is and how to rebuild.
void check_build(const CudaBuild& build, const CudaDriver& driver, int32_t index);

}  // namespace pilotfish
