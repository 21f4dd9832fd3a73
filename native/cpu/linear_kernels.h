// What one instruction set implements of `linear`. Activations travel in panels of a few rows.
//
// Panel of m rows, int formats, for each block of 32 columns: int8 [m][32], f32 scale [m], then int32 [m]
// -z * sum (int4, int8: where the dot product starts) or f32 [m] scale * sum (int4_asym: the offset's factor).
// Panel of m rows, f16 and f32 formats: f32 [columns padded to 64][m].
#pragma once

#include "linear.h"

namespace pilotfish {

constexpr int64_t kPanelBlockBytes = kBlockColumns + 8;  // of a row

constexpr size_t panel_bytes(WeightFormat format, int64_t in_features, int64_t num_rows) {
  const int64_t num_columns = ceil_div(in_features, kGroupColumns) * kGroupColumns;
  const int64_t bytes = is_integer(format) ? num_columns / kBlockColumns * kPanelBlockBytes : num_columns * 4;
  return static_cast<size_t>(bytes * num_rows);
}

struct LinearKernels {
  int64_t max_panel_rows;

  // Normalises num_rows rows of x and writes them as one panel.
  void (*pack)(const LinearWeights& weights, const float* x, int64_t num_rows, std::byte* panel);

  // Output tiles [first_tile, last_tile) of y for a panel; rows holds exactly the panel's rows. A tile is 16 outputs.
  void (*multiply)(const LinearWeights& weights, const std::byte* panel, const LinearRows& rows, int64_t first_tile,
                   int64_t last_tile);

  // The same for one row of an int format, whose panel has two: the row, and what its rounding to int8 has left.
  void (*pack_refined)(const LinearWeights& weights, const float* x, std::byte* panel);
  void (*multiply_refined)(const LinearWeights& weights, const std::byte* panel, const LinearRows& row,
                           int64_t first_tile, int64_t last_tile);
};

namespace avx512 {
extern const LinearKernels kLinearKernels;
}
namespace avx2 {
extern const LinearKernels kLinearKernels;
}
namespace neon {
extern const LinearKernels kLinearKernels;
}
namespace dotprod {
extern const LinearKernels kLinearKernels;
}
namespace i8mm {
extern const LinearKernels kLinearKernels;
}
namespace portable {
extern const LinearKernels kLinearKernels;
}

}  // namespace pilotfish
