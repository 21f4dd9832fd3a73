// Rows that a device copies side by side. Plain, shared with libpilotfish_cuda; the pointers are to device memory.
#pragma once

#include <cstdint>

#include "device/round_kernels.h"

namespace pilotfish {

struct RowGather {
  float* target;        // [num_rows, num_columns]
  const float* source;  // [.., num_columns]
  int32_t num_columns;
  int32_t num_rows;
  const int32_t* device_rows;   // [num_rows] of the source, on the device; null:
  int32_t rows[kMaxRoundRows];  // the same
};

}  // namespace pilotfish
