#include <sys/sysctl.h>

#include "base/platform/memory.h"

namespace pilotfish::platform {

uint64_t memory_limit(const std::filesystem::path&) {
  uint64_t num_bytes = 0;
  size_t size = sizeof num_bytes;
  return sysctlbyname("hw.memsize", &num_bytes, &size, nullptr, 0) == 0 ? num_bytes : 0;
}

}  // namespace pilotfish::platform
