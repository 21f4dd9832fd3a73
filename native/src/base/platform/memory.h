// How much memory this process may have.
#pragma once

#include <cstdint>
#include <filesystem>

namespace pilotfish::platform {

// The machine's memory, or less where the process's control groups allow less (Linux; the smallest limit on the way to
// the root counts): memory.max of version 2, memory.limit_in_bytes of version 1 below `root`, which is "/" but in
// tests. 0: the system does not tell.
uint64_t memory_limit(const std::filesystem::path& root = "/");

}  // namespace pilotfish::platform
