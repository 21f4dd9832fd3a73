#include "device/cuda_library.h"

#include <filesystem>

#include "base/platform/library.h"
#include "base/platform/text.h"
#include "base/status.h"
#include "device/cuda_build.h"

namespace pilotfish {
namespace {

struct Kernels {
  const CudaBuild* build;
  CudaOpenFunction open;
};

Kernels load_kernels(const std::string& path) {
  // It stays loaded: the CUDA runtime in it registers its kernels for the life of the process.
  const auto [library, reason, lacks_memory] = platform::open_library(path);
  if (lacks_memory) fail(PF_OUT_OF_MEMORY, "the CUDA kernels of pilotfish cannot be opened: ", reason);
  if (!library) {
    fail(PF_UNSUPPORTED, "device cuda needs the CUDA kernels of pilotfish, which cannot be opened: ", reason,
         "; install pilotfish with --config-settings=cmake.define.PILOTFISH_CUDA=ON, or build native/ with "
         "-DPILOTFISH_CUDA=ON");
  }
  const Kernels kernels{static_cast<const CudaBuild*>(platform::find_symbol(library, kCudaBuildSymbol)),
                        reinterpret_cast<CudaOpenFunction>(platform::find_symbol(library, kCudaOpenSymbol))};
  if (!kernels.build || !kernels.open) {
    fail(PF_UNSUPPORTED, path, " is not pilotfish's: it has no ", kernels.build ? kCudaOpenSymbol : kCudaBuildSymbol);
  }
  if (kernels.build->interface_version != kCudaInterfaceVersion) {
    fail(PF_UNSUPPORTED, path, " has interface ", kernels.build->interface_version, ", this library asks for ",
         kCudaInterfaceVersion, ": they are of different builds; install pilotfish again");
  }
  return kernels;
}

}  // namespace

CudaLibraries default_cuda_libraries() {
  const std::filesystem::path own = platform::file_of(reinterpret_cast<const void*>(&open_cuda_device));
  const std::string kernels = platform::library_name("pilotfish_cuda");
  return {platform::text_of_path(own.parent_path() / kernels), platform::cuda_driver_name()};
}

CudaBuild read_cuda_build(const CudaLibraries& libraries) { return *load_kernels(libraries.kernels).build; }

std::shared_ptr<CudaDevice> open_cuda_device(int32_t index, const CudaLibraries& libraries) {
  const Kernels kernels = load_kernels(libraries.kernels);
  check_build(*kernels.build, read_cuda_driver(libraries.driver), index);
  return std::shared_ptr<CudaDevice>(kernels.open(index));
}

}  // namespace pilotfish
