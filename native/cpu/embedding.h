// Rows of a packed weight back to float.
#pragma once

#include <cstddef>
#include <cstdint>

#include "packed_weights.h"

namespace pilotfish {

// out[column] = scale * weight[row, column] for the first num_columns columns. int4_asym is multiplied, then added to:
// the bits of a Q4_1 weight.
void unpack_row(WeightFormat format, const std::byte* packed, int64_t num_columns, int64_t row, float scale,
                float* out);

}  // namespace pilotfish
