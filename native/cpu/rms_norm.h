// The RMSNorm factor of a row and loads that stop at a row's end. Written with simd.h only.
#pragma once

#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

inline int64_t lanes_left(int64_t num_columns, int64_t column) {
  const int64_t left = num_columns - column;
  return left < 0 ? 0 : (left < kLanes ? left : kLanes);
}

// Columns [column, column + 16) of a row, zero past its end.
inline Floats load_columns(const float* row, int64_t num_columns, int64_t column) {
  return column + kLanes <= num_columns ? load(row + column)
                                        : load_first(row + column, lanes_left(num_columns, column));
}

// 1 / sqrt(mean(x^2) + epsilon). Column k adds to partial sum k % 64; the 64 are then added as a tree.
inline float inverse_rms(const float* x, int64_t num_columns, float epsilon) {
  Floats sums[4] = {zeros(), zeros(), zeros(), zeros()};
  for (int64_t column = 0; column < num_columns; column += 4 * kLanes) {
    for (int part = 0; part < 4; ++part) {
      const Floats value = load_columns(x, num_columns, column + part * kLanes);
      sums[part] = add(sums[part], mul(value, value));
    }
  }
  const float sum = sum_lanes(add(add(sums[0], sums[2]), add(sums[1], sums[3])));
  return 1.0f / __builtin_sqrtf(sum / static_cast<float>(num_columns) + epsilon);
}

}  // namespace pilotfish::PILOTFISH_SIMD
