// Rows that a device copies side by side. Plain, shared with libpilotfish_cuda; the pointers are to device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/round_kernels.h"

namespace pilotfish {

// The same rows of each part.
struct RowGather {
  float* target;        // [num_parts][num_rows, num_columns], a part every target_stride floats
  const float* source;  // [num_parts][.., num_columns], a part every source_stride floats
  size_t target_stride, source_stride;
  int32_t num_parts;
  int32_t num_columns;
  int32_t num_rows;
  const int32_t* device_rows;   // [num_rows] of the source, on the device; null:
  int32_t rows[kMaxRoundRows];  // the same
};

}  // namespace pilotfish
