#include <sys/sysctl.h>

#include <algorithm>

#include "base/platform/processor.h"

namespace pilotfish::platform {
namespace {

std::optional<int32_t> read_number(const char* name) {
  int32_t value = 0;
  size_t num_bytes = sizeof value;
  if (sysctlbyname(name, &value, &num_bytes, nullptr, 0) != 0) return std::nullopt;
  return value;
}

}  // namespace

std::string processor_name() {
  char name[256] = {};
  size_t num_bytes = sizeof name - 1;
  return sysctlbyname("machdep.cpu.brand_string", name, &num_bytes, nullptr, 0) == 0 ? name : "unknown processor";
}

// The fast ones, where there are two kinds: a pass waits for its slowest thread.
int32_t num_physical_cores() {
  const std::optional<int32_t> fast = read_number("hw.perflevel0.physicalcpu");
  return std::max(1, fast ? *fast : read_number("hw.physicalcpu").value_or(1));
}

std::optional<double> cpu_quota(const std::filesystem::path&) { return std::nullopt; }

ArmFeatures arm_features() noexcept {
  const auto has = [](const char* name) { return read_number(name).value_or(0) != 0; };
  return {.dotprod = has("hw.optional.arm.FEAT_DotProd"),
          .i8mm = has("hw.optional.arm.FEAT_I8MM"),
          .sha2 = has("hw.optional.arm.FEAT_SHA256")};
}

}  // namespace pilotfish::platform
