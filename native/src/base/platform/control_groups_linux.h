// The folders of the control groups that this process is in, of version 2 and of version 1 (Linux).
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace pilotfish::platform {

// Calls `visit` with the folder of each group that may limit what `controller` ("cpu", "memory") has, from the
// process's own group up to the root's. Reads `root`/proc/self/cgroup; folders may not exist.
void visit_control_groups(const std::filesystem::path& root, std::string_view controller,
                          const std::function<void(const std::filesystem::path& folder)>& visit);

}  // namespace pilotfish::platform
