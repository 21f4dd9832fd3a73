// Integer dot products of a weight tile with a panel, for the sets of NEON: half of a tile's outputs at a time, whose
// weights of a block stay in 16 registers while the panel's rows pass by. How a row is multiplied is each set's own.
// What holds those registers is always inlined: clang makes calls of it otherwise, with the weights in memory.
#pragma once

#include "linear_kernels.h"
#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

inline constexpr int kMaxPanelRows = 8;

// Signed bytes of 8 outputs and 32 columns: int4 is 0..15, int8 -128..127 without its zero point.
struct HalfWeights {
  int8x16_t quads[8][2];  // [quad][4 outputs][4 columns]
};

// `order` takes two quads as they were loaded and puts them into the order that the set multiplies.
template <WeightFormat kFormat, class Order>
[[gnu::always_inline]] inline HalfWeights load_half(const std::byte* block, int half, const Order& order) {
  constexpr bool kIsInt8 = kFormat == WeightFormat::kInt8;
  HalfWeights weights;
#pragma GCC unroll 4
  for (int quad = 0; quad < (kIsInt8 ? 8 : 4); quad += 2) {
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      const auto from = reinterpret_cast<const uint8_t*>(block) + quad * 64 + half * 32 + part * 16;
      uint8x16_t first = vld1q_u8(from), second = vld1q_u8(from + 64);
      order(first, second);
      if constexpr (kIsInt8) {
        weights.quads[quad][part] = vreinterpretq_s8_u8(veorq_u8(first, vdupq_n_u8(128)));
        weights.quads[quad + 1][part] = vreinterpretq_s8_u8(veorq_u8(second, vdupq_n_u8(128)));
      } else {
        weights.quads[quad][part] = vreinterpretq_s8_u8(vandq_u8(first, vdupq_n_u8(15)));
        weights.quads[quad + 1][part] = vreinterpretq_s8_u8(vandq_u8(second, vdupq_n_u8(15)));
        weights.quads[quad + 4][part] = vreinterpretq_s8_u8(vshrq_n_u8(first, 4));
        weights.quads[quad + 5][part] = vreinterpretq_s8_u8(vshrq_n_u8(second, 4));
      }
    }
  }
  return weights;
}

// A block of a panel of kRows rows.
template <WeightFormat kFormat, int kRows>
struct PanelBlock {
  const std::byte* bytes;

  const int8_t* activations(int row) const { return reinterpret_cast<const int8_t*>(bytes) + row * kBlockColumns; }
  const float* scales() const { return reinterpret_cast<const float*>(bytes + kRows * kBlockColumns); }
  const float* offsets() const { return scales() + kRows; }
  // Where the dot products of int4 start.
  const int32_t* starts() const { return reinterpret_cast<const int32_t*>(scales() + kRows); }
  int32_t start(int row) const { return kFormat == WeightFormat::kInt4 ? starts()[row] : 0; }
};

// What a block's dot products are added to, for half of the outputs.
template <WeightFormat kFormat, int kRows>
struct HalfTotals {
  PanelBlock<kFormat, kRows> panel;
  float32x4_t scales[2];
  float32x4_t offsets[2];  // int4_asym
  float* sums;             // [kRows, 16], at the half's first output

  // Rows [first, first + kCount) with their dot products of 8 outputs. All is read before anything is written: the
  // compiler cannot know that these are other places.
  template <int kCount>
  [[gnu::always_inline]] void add(int first, const int32x4_t (&dots)[kCount][2]) const {
    float32x4_t totals[kCount][2];
#pragma GCC unroll 4
    for (int row = 0; row < kCount; ++row) {
#pragma GCC unroll 2
      for (int part = 0; part < 2; ++part) {
        const float32x4_t factor = vmulq_n_f32(scales[part], panel.scales()[first + row]);
        const float32x4_t before = vld1q_f32(sums + (first + row) * kLanes + 4 * part);
        totals[row][part] = vfmaq_f32(before, vcvtq_f32_s32(dots[row][part]), factor);
        if constexpr (kFormat == WeightFormat::kInt4Asym) {
          totals[row][part] = vfmaq_n_f32(totals[row][part], offsets[part], panel.offsets()[first + row]);
        }
      }
    }
#pragma GCC unroll 4
    for (int row = 0; row < kCount; ++row) {
#pragma GCC unroll 2
      for (int part = 0; part < 2; ++part) vst1q_f32(sums + (first + row) * kLanes + 4 * part, totals[row][part]);
    }
  }
};

inline void load_eight_halves(const std::byte* from, float32x4_t (&to)[2]) {
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(reinterpret_cast<const uint16_t*>(from)));
  to[0] = vcvt_f32_f16(vget_low_f16(halves));
  to[1] = vcvt_high_f32_f16(halves);
}

// Calls add_half(block's weights, half, totals) for both halves of each block.
template <WeightFormat kFormat, int kRows, class AddHalf>
inline void for_half_blocks(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums,
                            const AddHalf& add_half) {
  constexpr size_t kBlockBytes = kFormat == WeightFormat::kInt8 ? kInt8BlockBytes : kInt4BlockBytes;
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) store(sums + row * kLanes, zeros());
  for (int64_t block = 0; block < 2 * num_groups; ++block) {
    const size_t side = static_cast<size_t>(block) % 2;
    const std::byte* const scales = tile + 2 * kBlockBytes + side * kScaleBytes;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      HalfTotals<kFormat, kRows> totals{{panel}, {}, {}, sums + 8 * half};
      load_eight_halves(scales + half * 16, totals.scales);
      if constexpr (kFormat == WeightFormat::kInt4Asym) {
        load_eight_halves(scales + 2 * kScaleBytes + half * 16, totals.offsets);
      }
      add_half(tile + side * kBlockBytes, half, totals);
    }
    panel += kRows * (kBlockColumns + 8);
    tile += side * group_bytes(kFormat);
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
