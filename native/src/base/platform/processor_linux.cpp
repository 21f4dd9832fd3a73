#include <sched.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "base/platform/control_groups_linux.h"
#include "base/platform/processor.h"

namespace pilotfish::platform {
namespace {

// quota / period; none where the quota is "max" or -1, or a file does not hold two positive numbers.
std::optional<double> cores_of(const std::string& quota, const std::string& period) {
  double quota_us = 0, period_us = 0;
  std::istringstream(quota) >> quota_us;
  std::istringstream(period) >> period_us;
  if (!(quota_us > 0) || !(period_us > 0)) return std::nullopt;
  return quota_us / period_us;
}

std::string read_word(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// The quota of one group's folder, in either version's files.
std::optional<double> quota_of(const std::filesystem::path& folder) {
  std::ifstream file(folder / "cpu.max");
  std::string quota, period;
  if (file >> quota >> period) return cores_of(quota, period);
  return cores_of(read_word(folder / "cpu.cfs_quota_us"), read_word(folder / "cpu.cfs_period_us"));
}

}  // namespace

// x86 kernels give a name; others give the numbers of the maker and of the part.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string numbers;
  for (std::string line; std::getline(file, line);) {
    const std::string value = line.substr(std::min(line.find(':') + 2, line.size()));
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer") || line.starts_with("CPU part")) numbers += " " + value;
  }
  return numbers.empty() ? "unknown processor" : "processor" + numbers;
}

int32_t num_physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::string> cores;  // a core is known by the list of its siblings
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = std::to_string(cpu);
    cores.insert(siblings);
  }
  return cores.empty() ? 1 : static_cast<int32_t>(cores.size());
}

// Groups whose folders do not exist have no quota.
std::optional<double> cpu_quota(const std::filesystem::path& root) {
  std::optional<double> least;
  visit_control_groups(root, "cpu", [&](const std::filesystem::path& folder) {
    const std::optional<double> quota = quota_of(folder);
    if (quota) least = std::min(least.value_or(*quota), *quota);
  });
  return least;
}

ArmFeatures arm_features() noexcept {
#if defined(__aarch64__)
  // Bits of Linux' interface for 64-bit Arm; older headers lack the names.
  constexpr unsigned long kSha2 = 1ul << 6, kDotprod = 1ul << 20;  // of AT_HWCAP
  constexpr unsigned long kI8mm = 1ul << 13;                       // of AT_HWCAP2
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  return {.dotprod = (first & kDotprod) != 0, .i8mm = (second & kI8mm) != 0, .sha2 = (first & kSha2) != 0};
#else
  return {};
#endif
}

}  // namespace pilotfish::platform
