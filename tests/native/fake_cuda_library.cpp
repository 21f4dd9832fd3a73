// A libpilotfish_cuda.so of FAKE_INTERFACE, built with CUDA 13.0 for 80, 86 and 90, that opens no device: it says in an
// error which one it was asked for.
#include "base/status.h"
#include "device/cuda_build.h"
#include "device/cuda_device.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED const pilotfish::CudaBuild pilotfish_cuda_build;
const pilotfish::CudaBuild pilotfish_cuda_build = {FAKE_INTERFACE, 13000, "80, 86, 90"};

EXPORTED pilotfish::CudaDevice* pilotfish_cuda_open(int32_t index) {
  pilotfish::fail(PF_CUDA_FAILED, "opened device ", index);
}
