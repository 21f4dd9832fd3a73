#include <dlfcn.h>

#include "base/platform/library.h"

namespace pilotfish::platform {
namespace {

#ifdef __APPLE__
constexpr const char* kSuffix = ".dylib";
#else
constexpr const char* kSuffix = ".so";
#endif

}  // namespace

OpenedLibrary open_library(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle) return {handle, {}, false};
  const std::string reason = dlerror();
  // glibc gives no reason where there is no address space left for the library.
  const bool lacks_memory = reason.ends_with("failed to map segment from shared object") ||
                            reason.find("Cannot allocate memory") != std::string::npos;
  return {nullptr, reason, lacks_memory};
}

void* find_symbol(void* library, const char* name) noexcept { return dlsym(library, name); }

std::filesystem::path file_of(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || !info.dli_fname) return {};
  return info.dli_fname;
}

std::string library_name(const char* name) { return std::string("lib") + name + kSuffix; }

std::string cuda_driver_name() { return "libcuda.so.1"; }

}  // namespace pilotfish::platform
