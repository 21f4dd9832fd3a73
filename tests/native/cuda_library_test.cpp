// Without a GPU, or in a build without CUDA kernels, asking for a device says what is missing; with both, it is one.
#include "cuda_library.h"

#include <cstdio>
#include <string>

#include "check.h"
#include "status.h"

int main() {
  using namespace pilotfish;
  try {
    const std::shared_ptr<CudaDevice> device = open_cuda_device(0);
    CHECK(device->info().num_sms > 0);
    std::printf("device 0: %s\n", device->info().name.c_str());
  } catch (const Error& error) {
    CHECK(error.status() == PF_UNSUPPORTED);
    const std::string message = error.what();
    const bool names_library = message.find("libpilotfish_cuda.so") != std::string::npos &&
                               message.find("-DPILOTFISH_CUDA=ON") != std::string::npos;
    const bool names_driver = message.find("no CUDA device can be used") != std::string::npos &&
                              message.find("nvidia-smi") != std::string::npos;
    const bool names_architecture = message.find("-DPILOTFISH_CUDA_ARCHITECTURES=") != std::string::npos;
    CHECK(names_library || names_driver || names_architecture);
  }
  return check::result();
}
