// Integer dot products with `smmla`, which multiplies 2 outputs by 2 rows, 8 columns at a time; one row alone uses
// `sdot`. Weights are brought into the instruction's order in registers, by zip1 and zip2.
#pragma once

#include "dot_dotprod.h"

namespace pilotfish::PILOTFISH_SIMD {

// Two quads of 4 outputs become outputs 0 and 1, then 2 and 3, of the eight columns.
inline void pair_outputs(uint8x16_t& first, uint8x16_t& second) {
  const uint32x4_t a = vreinterpretq_u32_u8(first), b = vreinterpretq_u32_u8(second);
  first = vreinterpretq_u8_u32(vzip1q_u32(a, b));
  second = vreinterpretq_u8_u32(vzip2q_u32(a, b));
}

// Eight columns of two rows each: columns 0, 8, 16 and 24 of a block on.
struct RowPair {
  int8x16_t columns[4];

  RowPair(const int8_t* first, const int8_t* second) {
#pragma GCC unroll 2
    for (int side = 0; side < 2; ++side) {
      const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(first + 16 * side));
      const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(second + 16 * side));
      columns[2 * side] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
      columns[2 * side + 1] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
    }
  }
};

// Sums of four outputs with two rows: [2 pairs of outputs][2 outputs][2 rows].
struct PairSums {
  int32x4_t outputs[2];

  int32x4_t first_row() const { return vuzp1q_s32(outputs[0], outputs[1]); }
  int32x4_t second_row() const { return vuzp2q_s32(outputs[0], outputs[1]); }
};

[[gnu::always_inline]] inline PairSums dot_outputs(const HalfWeights& weights, int part, const RowPair& rows,
                                                   int32x4_t start) {
  PairSums sums{{start, start}};
#pragma GCC unroll 4
  for (int step = 0; step < 4; ++step) {
    sums.outputs[0] = vmmlaq_s32(sums.outputs[0], weights.quads[2 * step][part], rows.columns[step]);
    sums.outputs[1] = vmmlaq_s32(sums.outputs[1], weights.quads[2 * step + 1][part], rows.columns[step]);
  }
  return sums;
}

template <WeightFormat kFormat, int kRows>
struct DotInteger {
  static void run(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums) {
    const auto add_half = [](const std::byte* block, int half,
                             const HalfTotals<kFormat, kRows>& totals) __attribute__((always_inline)) {
      const HalfWeights weights = load_half<kFormat>(block, half, pair_outputs);
#pragma GCC unroll 4
      for (int row = 0; row < kRows; row += 2) {
        const int other = row + 1 < kRows ? row + 1 : row;
        const RowPair rows(totals.panel.activations(row), totals.panel.activations(other));
        const int32_t starts[4] = {totals.panel.start(row), totals.panel.start(other), totals.panel.start(row),
                                   totals.panel.start(other)};
        const int32x4_t start = vld1q_s32(starts);
        const PairSums low = dot_outputs(weights, 0, rows, start), high = dot_outputs(weights, 1, rows, start);
        const int32x4_t dots[2][2] = {{low.first_row(), high.first_row()}, {low.second_row(), high.second_row()}};
        if (other != row) {
          totals.add(row, dots);
        } else {
          const int32x4_t alone[1][2] = {{dots[0][0], dots[0][1]}};
          totals.add(row, alone);
        }
      }
    };
    for_half_blocks<kFormat, kRows>(tile, num_groups, panel, sums, add_half);
  }
};

template <WeightFormat kFormat>
struct DotInteger<kFormat, 1> : DotLanes<kFormat, 1> {};

}  // namespace pilotfish::PILOTFISH_SIMD
