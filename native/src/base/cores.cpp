#include "base/cores.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/platform/processor.h"

namespace pilotfish {

int32_t num_usable_cores() {
  const int32_t num_cores = platform::num_physical_cores();
  const std::optional<double> quota = platform::cpu_quota();
  if (!quota || *quota >= num_cores) return num_cores;
  return std::max(1, static_cast<int32_t>(std::ceil(*quota)));
}

}  // namespace pilotfish
