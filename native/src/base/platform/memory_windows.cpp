#include <windows.h>

#include "base/platform/memory.h"

namespace pilotfish::platform {

uint64_t memory_limit(const std::filesystem::path&) {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) ? status.ullTotalPhys : 0;
}

}  // namespace pilotfish::platform
