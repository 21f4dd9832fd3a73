// Which processor this is, and how much of it the process may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace pilotfish::platform {

// As the maker calls it; "unknown processor" where the system does not tell.
std::string processor_name();

// Physical cores among the processors that this process may run on; at least 1.
int32_t num_physical_cores();

// Cores that the quota of the process's control groups amounts to (Linux), the smallest one on the way to the root
// counts; none without a quota. Reads `root`/proc/self/cgroup and `root`/sys/fs/cgroup of version 2 (cpu.max) and
// version 1 (cpu.cfs_quota_us). `root` is "/" but in tests.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

// What a 64-bit Arm processor has beyond NEON, as the system says; nothing on other processors.
struct ArmFeatures {
  bool dotprod = false;
  bool i8mm = false;
  bool sha2 = false;
};

ArmFeatures arm_features() noexcept;

}  // namespace pilotfish::platform
