// How many threads this process can run at once: its physical cores, and the share of them that its control group has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace pilotfish {

// Threads of a pass by default: the physical cores among the processors that this process may run on, but no more than
// its control groups' CPU quota (`docker run --cpus=2`) is good for, rounded up. Threads beyond a quota would be
// stopped by the kernel in the middle of a pass while the others wait for them.
int32_t num_usable_cores();

// Cores that the quota of the process's control groups amounts to, the smallest one on the way to the root counts; none
// without a quota. Reads `root`/proc/self/cgroup and `root`/sys/fs/cgroup of version 2 (cpu.max) and version 1
// (cpu.cfs_quota_us). `root` is "/" but in tests.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace pilotfish
