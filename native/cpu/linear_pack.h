// Activations on their way into a panel: RMSNorm, then int8 quantisation for the int formats. Written with simd.h only.
#pragma once

#include <cstring>

#include "linear_kernels.h"
#include "rms_norm.h"
#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

// Blocks whose largest magnitude is below this count as zero: 127 / max must stay finite.
inline constexpr float kSmallestBlockMaximum = 0x1p-119f;
inline constexpr float kLargestBlockMaximum = 0x1.fffffep127f;

// A row as the matrix sees it: normalised where a norm weight is given.
struct NormalisedRow {
  const float* x;
  const float* norm_weight;
  int64_t num_columns;
  float inverse_rms;

  Floats columns(int64_t column) const {
    const Floats value = load_columns(x, num_columns, column);
    if (norm_weight == nullptr) return value;
    return mul(mul(value, broadcast(inverse_rms)), load_columns(norm_weight, num_columns, column));
  }
};

inline NormalisedRow normalised_row(const LinearWeights& weights, const float* x) {
  const float inverse =
      weights.norm_weight == nullptr ? 1.0f : inverse_rms(x, weights.in_features, weights.norm_epsilon);
  return {x, weights.norm_weight, weights.in_features, inverse};
}

// One block of one row, quantised to int8: bytes and scale are written, the sum of the bytes is returned.
inline int32_t quantise_block(const NormalisedRow& row, int64_t column, int8_t* bytes, float* scale) {
  const Floats first = row.columns(column), second = row.columns(column + kLanes);
  const float maximum = largest_magnitude(first, second);
  *scale = maximum / 127.0f;
  if (!(maximum <= kLargestBlockMaximum)) {  // infinite or NaN, as is the scale: so are all products with the block
    std::memset(bytes, 0, kBlockColumns);
    return 0;
  }
  const Floats factor = broadcast(maximum < kSmallestBlockMaximum ? 0.0f : 127.0f / maximum);
  return store_bytes(bytes, round(mul(first, factor))) + store_bytes(bytes + kLanes, round(mul(second, factor)));
}

inline void pack_integers(const LinearWeights& weights, const float* x, int64_t num_rows, std::byte* panel) {
  const int64_t num_blocks = ceil_div(weights.in_features, kGroupColumns) * 2;
  const int64_t block_bytes = num_rows * (kBlockColumns + 8);
  const int32_t zero_point = weights.format == WeightFormat::kInt8 ? 128 : 8;
  for (int64_t r = 0; r < num_rows; ++r) {
    const NormalisedRow row = normalised_row(weights, x + r * weights.in_features);
    for (int64_t block = 0; block < num_blocks; ++block) {
      std::byte* const at = panel + block * block_bytes;
      const auto scales = reinterpret_cast<float*>(at + num_rows * kBlockColumns);
      const auto bytes = reinterpret_cast<int8_t*>(at) + r * kBlockColumns;
      const int32_t sum = quantise_block(row, block * kBlockColumns, bytes, scales + r);
      if (weights.format == WeightFormat::kInt4Asym) {
        scales[num_rows + r] = scales[r] * static_cast<float>(sum);
      } else {
        reinterpret_cast<int32_t*>(scales + num_rows)[r] = -zero_point * sum;
      }
    }
  }
}

inline void pack_floats(const LinearWeights& weights, const float* x, int64_t num_rows, std::byte* panel) {
  const int64_t num_columns = ceil_div(weights.in_features, kGroupColumns) * kGroupColumns;
  const auto out = reinterpret_cast<float*>(panel);
  for (int64_t r = 0; r < num_rows; ++r) {
    const NormalisedRow row = normalised_row(weights, x + r * weights.in_features);
    for (int64_t column = 0; column < num_columns; column += kLanes) {
      alignas(64) float lanes[kLanes];
      store(lanes, row.columns(column));
      for (int lane = 0; lane < kLanes; ++lane) out[(column + lane) * num_rows + r] = lanes[lane];
    }
  }
}

inline void pack(const LinearWeights& weights, const float* x, int64_t num_rows, std::byte* panel) {
  if (is_integer(weights.format)) {
    pack_integers(weights, x, num_rows, panel);
  } else {
    pack_floats(weights, x, num_rows, panel);
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
