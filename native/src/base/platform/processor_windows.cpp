#include <windows.h>

#include <algorithm>
#include <vector>

#include "base/platform/processor.h"

namespace pilotfish::platform {

std::string processor_name() {
  char name[256] = {};
  DWORD num_bytes = sizeof name - 1;
  const LSTATUS status = RegGetValueA(HKEY_LOCAL_MACHINE, "HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0",
                                      "ProcessorNameString", RRF_RT_REG_SZ, nullptr, name, &num_bytes);
  return status == ERROR_SUCCESS ? name : "unknown processor";
}

int32_t num_physical_cores() {
  DWORD_PTR allowed = 0, all = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &allowed, &all)) return 1;
  DWORD num_bytes = 0;
  GetLogicalProcessorInformation(nullptr, &num_bytes);
  std::vector<SYSTEM_LOGICAL_PROCESSOR_INFORMATION> entries(num_bytes / sizeof(SYSTEM_LOGICAL_PROCESSOR_INFORMATION));
  if (!GetLogicalProcessorInformation(entries.data(), &num_bytes)) return 1;
  const auto is_usable = [&](const SYSTEM_LOGICAL_PROCESSOR_INFORMATION& entry) {
    return entry.Relationship == RelationProcessorCore && (entry.ProcessorMask & allowed) != 0;
  };
  return std::max(1, static_cast<int32_t>(std::count_if(entries.begin(), entries.end(), is_usable)));
}

std::optional<double> cpu_quota(const std::filesystem::path&) { return std::nullopt; }

ArmFeatures arm_features() noexcept { return {}; }  // only x86-64 is built for Windows

}  // namespace pilotfish::platform
