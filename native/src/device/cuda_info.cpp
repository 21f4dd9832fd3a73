#include "device/cuda_info.h"

#include <algorithm>
#include <string_view>

#include "device/cuda_library.h"

namespace pilotfish {
namespace {

template <size_t kSize>
void copy_text(std::string_view text, char (&out)[kSize]) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::copy_n(text.data(), length, out);
  out[length] = '\0';
}

}  // namespace

pf_cuda_info describe_cuda(int32_t index, bool measure) {
  const CudaLibraries libraries = default_cuda_libraries();
  const auto device = open_cuda_device(index, libraries);
  const CudaBuild build = read_cuda_build(libraries);
  const CudaDeviceInfo found = device->info();
  pf_cuda_info info{};
  info.struct_size = sizeof info;
  info.num_devices = static_cast<int32_t>(read_cuda_driver(libraries.driver).devices.size());
  info.compute_capability = found.compute_capability;
  info.num_multiprocessors = found.num_sms;
  info.driver_version = found.driver_version;
  info.build_version = build.cuda_version;
  info.total_bytes = found.total_bytes;
  info.free_bytes = found.free_bytes;
  copy_text(found.name, info.name);
  copy_text(build.architectures, info.architectures);
  if (measure) info.read_bytes_per_second = device->measure_read_bandwidth();
  return info;
}

}  // namespace pilotfish
