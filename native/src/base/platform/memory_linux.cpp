#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/platform/control_groups_linux.h"
#include "base/platform/memory.h"

namespace pilotfish::platform {
namespace {

// "max", and files that do not exist or hold no number, limit nothing.
void take_smallest(const std::filesystem::path& file, uint64_t& least) {
  uint64_t limit = 0;
  if (std::ifstream(file) >> limit && limit > 0) least = least > 0 ? std::min(least, limit) : limit;
}

}  // namespace

uint64_t memory_limit(const std::filesystem::path& root) {
  const long num_pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  uint64_t least = num_pages > 0 && page_bytes > 0 ? uint64_t(num_pages) * uint64_t(page_bytes) : 0;
  visit_control_groups(root, "memory", [&](const std::filesystem::path& folder) {
    take_smallest(folder / "memory.max", least);
    take_smallest(folder / "memory.limit_in_bytes", least);
  });
  return least;
}

}  // namespace pilotfish::platform
