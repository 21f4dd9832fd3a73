// Integer dot products with plain NEON, for processors without dot product instructions. Products of bytes are added
// in 16 bits, which is exact: 15 * 127 * 8 quads of int4 fit, and 128 * 127 * 2 of int8.
#pragma once

#include "dot_half_tile.h"

namespace pilotfish::PILOTFISH_SIMD {

// Adds the products of four outputs with four activations, repeated in `quad`: words[i] has outputs 2 i and 2 i + 1.
inline void add_products(int16x8_t (&words)[2], int8x16_t weights, int8x16_t quad) {
  words[0] = vmlal_s8(words[0], vget_low_s8(weights), vget_low_s8(quad));
  words[1] = vmlal_high_s8(words[1], weights, quad);
}

template <WeightFormat kFormat>
[[gnu::always_inline]] inline int32x4_t dot_outputs(const HalfWeights& weights, int part, const int8_t* activations,
                                                    int32_t start) {
  constexpr int kQuadsInWords = kFormat == WeightFormat::kInt8 ? 2 : 8;
  int32x4_t sums[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
#pragma GCC unroll 4
  for (int first = 0; first < 8; first += kQuadsInWords) {
    int16x8_t words[2] = {vdupq_n_s16(0), vdupq_n_s16(0)};
#pragma GCC unroll 8
    for (int quad = first; quad < first + kQuadsInWords; ++quad) {
      const auto four = reinterpret_cast<const int32_t*>(activations) + quad;
      add_products(words, weights.quads[quad][part], vreinterpretq_s8_s32(vld1q_dup_s32(four)));
    }
    sums[0] = vpadalq_s16(sums[0], words[0]);
    sums[1] = vpadalq_s16(sums[1], words[1]);
  }
  return vaddq_s32(vpaddq_s32(sums[0], sums[1]), vdupq_n_s32(start));
}

template <WeightFormat kFormat, int kRows>
struct DotInteger {
  static void run(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums) {
    const auto add_half = [](const std::byte* block, int half,
                             const HalfTotals<kFormat, kRows>& totals) __attribute__((always_inline)) {
      const HalfWeights weights = load_half<kFormat>(block, half, [](uint8x16_t&, uint8x16_t&) {});
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const int8_t* const activations = totals.panel.activations(row);
        const int32_t start = totals.panel.start(row);
        const int32x4_t dots[1][2] = {{dot_outputs<kFormat>(weights, 0, activations, start),
                                       dot_outputs<kFormat>(weights, 1, activations, start)}};
        totals.add(row, dots);
      }
    };
    for_half_blocks<kFormat, kRows>(tile, num_groups, panel, sums, add_half);
  }
};

}  // namespace pilotfish::PILOTFISH_SIMD
