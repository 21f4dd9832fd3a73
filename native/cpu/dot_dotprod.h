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

inline constexpr int kRowsTogether = 2;

// Ends a step of the sums of two rows. Otherwise GCC puts a sum's steps behind each other again, to save registers.
inline void settle(int32x4_t (&sums)[2][2]) {
  int32x4_t a = sums[0][0], b = sums[0][1], c = sums[1][0], d = sums[1][1];
  asm("" : "+w"(a), "+w"(b), "+w"(c), "+w"(d));
  sums[0][0] = a;
  sums[0][1] = b;
  sums[1][0] = c;
  sums[1][1] = d;
}

// A step of each sum: four columns of kCount rows and 8 outputs.
template <int kQuad, int kCount>
[[gnu::always_inline]] inline void add_step(const HalfWeights& weights, const int8x16_t (&activations)[kCount][2],
                                            int32x4_t (&sums)[kCount][2]) {
#pragma GCC unroll 4
  for (int row = 0; row < kCount; ++row) {
    sums[row][0] = add_quad<kQuad>(sums[row][0], weights.quads[kQuad][0], activations[row]);
    sums[row][1] = add_quad<kQuad>(sums[row][1], weights.quads[kQuad][1], activations[row]);
  }
  if constexpr (kCount == 2) settle(sums);
}

// Rows [first, first + kCount) of half a block, a step of each sum after the other: a processor that takes instructions
// in order waits for the result of an `sdot` otherwise.
template <int kCount, WeightFormat kFormat, int kRows>
[[gnu::always_inline]] inline void add_rows(const HalfWeights& weights, const HalfTotals<kFormat, kRows>& totals,
                                            int first) {
  int8x16_t activations[kCount][2];
  int32x4_t sums[kCount][2];
#pragma GCC unroll 4
  for (int row = 0; row < kCount; ++row) {
    const int8_t* const from = totals.panel.activations(first + row);
    activations[row][0] = vld1q_s8(from);
    activations[row][1] = vld1q_s8(from + 16);
    sums[row][0] = sums[row][1] = vdupq_n_s32(totals.panel.start(first + row));
  }
  [&]<int... kQuad>(std::integer_sequence<int, kQuad...>) __attribute__((always_inline)) {
    (add_step<kQuad>(weights, activations, sums), ...);
  }(std::make_integer_sequence<int, 8>());
  totals.add(first, sums);
}

template <WeightFormat kFormat, int kRows>
struct DotLanes {
  static void run(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums) {
    const auto add_half = [](const std::byte* block, int half,
                             const HalfTotals<kFormat, kRows>& totals) __attribute__((always_inline)) {
      const HalfWeights weights = load_half<kFormat>(block, half, [](uint8x16_t&, uint8x16_t&) {});
#pragma GCC unroll 4
      for (int row = 0; row + kRowsTogether <= kRows; row += kRowsTogether)
        add_rows<kRowsTogether>(weights, totals, row);
      if constexpr (kRows % kRowsTogether != 0) add_rows<1>(weights, totals, kRows - 1);
    };
    for_half_blocks<kFormat, kRows>(tile, num_groups, panel, sums, add_half);
  }
};

}  // namespace pilotfish::PILOTFISH_SIMD
