// How many threads this process can run at once: its physical cores, and the share of them that its control group has.
#pragma once

#include <cstdint>

namespace pilotfish {

// Threads of a pass by default: the physical cores among the processors that this process may run on, but no more than
// its control groups' CPU quota (`docker run --cpus=2`) is good for, rounded up. Threads beyond a quota would be
// stopped by the kernel in the middle of a pass while the others wait for them.
int32_t num_usable_cores();

}  // namespace pilotfish
