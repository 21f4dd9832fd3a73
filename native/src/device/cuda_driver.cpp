#include "device/cuda_driver.h"

#include <array>

#include "base/platform/library.h"
#include "base/status.h"

namespace pilotfish {
namespace {

constexpr int kNoDevice = 100;           // CUDA_ERROR_NO_DEVICE
constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
constexpr size_t kNameBytes = 256;

// The part of the driver's API that is used; every function returns a CUresult, 0 for success.
struct DriverApi {
  int (*init)(unsigned flags);
  int (*version)(int* version);
  int (*count)(int* count);
  int (*device)(int* device, int index);
  int (*name)(char* name, int capacity, int device);
  int (*attribute)(int* value, int attribute, int device);
};

template <typename Function>
void find(void* library, const std::string& path, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(platform::find_symbol(library, symbol));
  if (!function) fail(PF_UNSUPPORTED, path, " is no NVIDIA driver: it has no ", symbol);
}

DriverApi load(const std::string& path) {
  const auto [library, reason, lacks_memory] = platform::open_library(path);
  if (lacks_memory) fail(PF_OUT_OF_MEMORY, "the NVIDIA driver cannot be opened: ", reason);
  if (!library) {
    fail(PF_UNSUPPORTED, "there is no NVIDIA driver: ", reason,
         "; install one, or give the container access to the GPU; nvidia-smi shows when it is there");
  }
  DriverApi api{};
  find(library, path, "cuInit", api.init);
  find(library, path, "cuDriverGetVersion", api.version);
  find(library, path, "cuDeviceGetCount", api.count);
  find(library, path, "cuDeviceGet", api.device);
  find(library, path, "cuDeviceGetName", api.name);
  find(library, path, "cuDeviceGetAttribute", api.attribute);
  return api;
}

void check(int result, const char* call) {
  if (result == 0) return;
  fail(PF_UNSUPPORTED, "the NVIDIA driver cannot be used: ", call, " gives CUDA error ", result,
       result == kNoDevice ? ", there is no GPU that this process may use (CUDA_VISIBLE_DEVICES hides some)" : "",
       "; nvidia-smi shows whether there is a GPU and which driver runs it");
}

CudaDriverDevice read_device(const DriverApi& api, int index) {
  int device = 0, major = 0, minor = 0;
  std::array<char, kNameBytes> name{};
  check(api.device(&device, index), "cuDeviceGet");
  check(api.name(name.data(), static_cast<int>(name.size()) - 1, device), "cuDeviceGetName");
  check(api.attribute(&major, kMajor, device), "cuDeviceGetAttribute");
  check(api.attribute(&minor, kMinor, device), "cuDeviceGetAttribute");
  return {name.data(), major * 10 + minor};
}

}  // namespace

CudaDriver read_cuda_driver(const std::string& library) {
  const DriverApi api = load(library);
  check(api.init(0), "cuInit");
  CudaDriver driver{};
  int count = 0;
  check(api.version(&driver.version), "cuDriverGetVersion");
  check(api.count(&count), "cuDeviceGetCount");
  if (count == 0) check(kNoDevice, "cuDeviceGetCount");
  for (int index = 0; index < count; ++index) driver.devices.push_back(read_device(api, index));
  return driver;
}

std::string cuda_version_text(int32_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace pilotfish
