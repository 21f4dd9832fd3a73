#include "device/cuda_build.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <vector>

#include "base/status.h"

namespace pilotfish {
namespace {

constexpr int32_t kOrin = 87;  // the system on a chip: code for the cards of its family does not run there

std::vector<int32_t> parse(std::string_view architectures) {
  std::vector<int32_t> numbers;
  const char* const end = architectures.data() + architectures.size();
  for (const char* at = architectures.data(); at < end;) {
    int32_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error == std::errc()) numbers.push_back(number);
    at = error == std::errc() ? next : at + 1;
  }
  return numbers;
}

std::string list_devices(const CudaDriver& driver) {
  std::ostringstream text;
  for (size_t index = 0; index < driver.devices.size(); ++index) {
    text << (index == 0 ? "" : ", ") << "cuda:" << index << " (" << driver.devices[index].name << ")";
  }
  return text.str();
}

}  // namespace

bool runs_on(std::string_view architectures, int32_t compute_capability) {
  const std::vector<int32_t> built = parse(architectures);
  if (built.empty()) return false;
  const bool has_code = std::any_of(built.begin(), built.end(), [&](int32_t architecture) {
    if (architecture == kOrin || compute_capability == kOrin) return architecture == compute_capability;
    return architecture / 10 == compute_capability / 10 && architecture <= compute_capability;
  });
  return has_code || built.back() <= compute_capability;
}

void check_build(const CudaBuild& build, const CudaDriver& driver, int32_t index) {
  // Within a major version an older driver runs newer code.
  if (driver.version / 1000 < build.cuda_version / 1000) {
    fail(PF_UNSUPPORTED, "the NVIDIA driver runs CUDA up to ", cuda_version_text(driver.version),
         ", this build of pilotfish needs ", build.cuda_version / 1000,
         ".0: update the driver, or build pilotfish with ", "a CUDA toolkit of version ", driver.version / 1000);
  }
  if (index < 0 || index >= static_cast<int32_t>(driver.devices.size())) {
    fail(PF_UNSUPPORTED, "device cuda:", index, " does not exist; this process may use ", list_devices(driver));
  }
  const CudaDriverDevice& device = driver.devices[index];
  if (runs_on(build.architectures, device.compute_capability)) return;
  fail(PF_UNSUPPORTED, "this build of pilotfish has no kernels for cuda:", index, ", ", device.name,
       " (compute capability ", device.compute_capability / 10, ".", device.compute_capability % 10, "), only for ",
       build.architectures, "; build it again with -DPILOTFISH_CUDA_ARCHITECTURES=", device.compute_capability,
       device.compute_capability < 80 ? ", but the kernels need 80 or later" : "");
}

}  // namespace pilotfish
