#include "base/platform/control_groups_linux.h"

#include <fstream>
#include <sstream>
#include <string>

namespace pilotfish::platform {
namespace {

using Visit = std::function<void(const std::filesystem::path&)>;

// A group and those above it. Inside a container the group's path may be the host's, and the hierarchy that is mounted
// begins at the container's own group.
void visit_upwards(const std::filesystem::path& hierarchy, std::filesystem::path group, const Visit& visit) {
  while (true) {
    visit(hierarchy / group.relative_path());
    if (!group.has_relative_path()) return;
    group = group.parent_path();
  }
}

bool names(const std::string& controllers, std::string_view controller) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == controller) return true;
  }
  return false;
}

}  // namespace

void visit_control_groups(const std::filesystem::path& root, std::string_view controller, const Visit& visit) {
  const std::filesystem::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  // A line is hierarchy:controllers:group; version 2 has no controllers.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::filesystem::path group = line.substr(second + 1);
    if (controllers.empty()) {
      visit_upwards(mounts, group, visit);
    } else if (names(controllers, controller)) {
      visit_upwards(mounts / controllers, group, visit);
      visit_upwards(mounts / controller, group, visit);
    }
  }
}

}  // namespace pilotfish::platform
