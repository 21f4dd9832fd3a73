#include "device/cuda_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "base/status.h"
#include "device/cuda_build.h"

namespace pilotfish {
namespace {

constexpr const char* kKernels = "libpilotfish_cuda.so";

// The folder that this library was loaded from.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&open_cuda_device), &info) || !info.dli_fname) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

struct Kernels {
  const CudaBuild* build;
  CudaOpenFunction open;
};

Kernels load_kernels(const std::string& path) {
  // It stays loaded: the CUDA runtime in it registers its kernels for the life of the process.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    fail(PF_UNSUPPORTED, "device cuda needs the CUDA kernels of pilotfish, which cannot be opened: ", dlerror(),
         "; install pilotfish with --config-settings=cmake.define.PILOTFISH_CUDA=ON, or build native/ with "
         "-DPILOTFISH_CUDA=ON");
  }
  const Kernels kernels{static_cast<const CudaBuild*>(dlsym(library, kCudaBuildSymbol)),
                        reinterpret_cast<CudaOpenFunction>(dlsym(library, kCudaOpenSymbol))};
  dlclose(library);
  if (!kernels.build || !kernels.open) {
    fail(PF_UNSUPPORTED, path, " is not pilotfish's: it has no ", kernels.build ? kCudaOpenSymbol : kCudaBuildSymbol);
  }
  if (kernels.build->interface_version != kCudaInterfaceVersion) {
    fail(PF_UNSUPPORTED, path, " has interface ", kernels.build->interface_version, ", libpilotfish.so asks for ",
         kCudaInterfaceVersion, ": they are of different builds; install pilotfish again");
  }
  return kernels;
}

}  // namespace

CudaLibraries default_cuda_libraries() { return {(own_folder() / kKernels).string(), "libcuda.so.1"}; }

CudaBuild read_cuda_build(const CudaLibraries& libraries) { return *load_kernels(libraries.kernels).build; }

std::shared_ptr<CudaDevice> open_cuda_device(int32_t index, const CudaLibraries& libraries) {
  const Kernels kernels = load_kernels(libraries.kernels);
  check_build(*kernels.build, read_cuda_driver(libraries.driver.c_str()), index);
  return std::shared_ptr<CudaDevice>(kernels.open(index));
}

}  // namespace pilotfish
