// A GPU as pf_cuda_describe() reports it.
#pragma once

#include <cstdint>

#include "pilotfish.h"

namespace pilotfish {

// Opens the device for as long as this takes. Throws what open_cuda_device() does.
pf_cuda_info describe_cuda(int32_t index, bool measure);

}  // namespace pilotfish
