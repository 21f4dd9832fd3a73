#include "cuda_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "status.h"

namespace pilotfish {
namespace {

constexpr const char* kLibrary = "libpilotfish_cuda.so";

// The folder that this library was loaded from.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&open_cuda_device), &info) || !info.dli_fname) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace

std::shared_ptr<CudaDevice> open_cuda_device(int32_t index) {
  const std::filesystem::path path = own_folder() / kLibrary;
  // It stays loaded: the CUDA runtime in it registers its kernels for the life of the process.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    fail(PF_UNSUPPORTED, "device cuda needs the CUDA kernels of pilotfish, which cannot be opened: ", dlerror(),
         "; build pilotfish with -DPILOTFISH_CUDA=ON");
  }
  const auto open = reinterpret_cast<CudaOpenFunction>(dlsym(library, kCudaOpenSymbol));
  dlclose(library);
  if (!open) fail(PF_UNSUPPORTED, path.string(), " is not pilotfish's: it has no ", kCudaOpenSymbol);
  return std::shared_ptr<CudaDevice>(open(kCudaInterfaceVersion, index));
}

}  // namespace pilotfish
