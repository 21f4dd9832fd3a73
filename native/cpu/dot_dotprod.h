// Integer dot products with `sdot` by lane: four outputs times four activations an instruction. The packing of weights
// is what the instruction takes.
#pragma once

#include <utility>

#include "dot_half_tile.h"

namespace pilotfish::PILOTFISH_SIMD {

// The intrinsic is a macro in clang's header, and macros expand no packs.
template <int kQuad>
int32x4_t add_quad(int32x4_t sum, int8x16_t weights, const int8x16_t (&activations)[2]) {
  return vdotq_laneq_s32(sum, weights, activations[kQuad / 4], kQuad % 4);
}

// Four outputs of half a block with a row of 32 activations.
inline int32x4_t dot_outputs(const HalfWeights& weights, int part, const int8x16_t (&activations)[2], int32_t start) {
  int32x4_t sum = vdupq_n_s32(start);
  const auto add_quads = [&]<int... kQuad>(std::integer_sequence<int, kQuad...>) {
    ((sum = add_quad<kQuad>(sum, weights.quads[kQuad][part], activations)), ...);
  };
  add_quads(std::make_integer_sequence<int, 8>());
  return sum;
}

template <WeightFormat kFormat, int kRows>
struct DotLanes {
  static void run(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums) {
    const auto add_half = [](const std::byte* block, int half, const HalfTotals<kFormat, kRows>& totals) {
      const HalfWeights weights = load_half<kFormat>(block, half, [](uint8x16_t&, uint8x16_t&) {});
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const int8_t* const from = totals.panel.activations(row);
        const int8x16_t activations[2] = {vld1q_s8(from), vld1q_s8(from + 16)};
        const int32_t start = totals.panel.start(row);
        totals.add(row, dot_outputs(weights, 0, activations, start), dot_outputs(weights, 1, activations, start));
      }
    };
    for_half_blocks<kFormat, kRows>(tile, num_groups, panel, sums, add_half);
  }
};

}  // namespace pilotfish::PILOTFISH_SIMD
