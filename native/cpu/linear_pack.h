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

// 32 columns of a row.
struct Block {
  Floats first, second;
};

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
  Block block(int64_t index) const { return {columns(index * kBlockColumns), columns(index * kBlockColumns + kLanes)}; }
};

inline NormalisedRow normalised_row(const LinearWeights& weights, const float* x) {
  const float inverse =
      weights.norm_weight == nullptr ? 1.0f : inverse_rms(x, weights.in_features, weights.norm_epsilon);
  return {x, weights.norm_weight, weights.in_features, inverse};
}

// One block of one row, quantised to int8: bytes and scale are written, the sum of the bytes is returned, and the block
// becomes what rounding has left of it.
inline int32_t quantise_block(Block& block, int8_t* bytes, float* scale) {
  const float maximum = largest_magnitude(block.first, block.second);
  *scale = maximum / 127.0f;
  if (!(maximum <= kLargestBlockMaximum)) {  // infinite or NaN, as is the scale: so are all products with the block
    std::memset(bytes, 0, kBlockColumns);
    return 0;
  }
  const Floats factor = broadcast(maximum < kSmallestBlockMaximum ? 0.0f : 127.0f / maximum);
  const Floats first = round(mul(block.first, factor)), second = round(mul(block.second, factor));
  const Floats step = broadcast(-*scale);
  block = {fma(first, step, block.first), fma(second, step, block.second)};
  return store_bytes(bytes, first) + store_bytes(bytes + kLanes, second);
}

// A block of row r of a panel's num_rows; `at` is where the panel has these 32 columns.
inline void write_block(WeightFormat format, Block& block, std::byte* at, int64_t num_rows, int64_t r) {
  const auto scales = reinterpret_cast<float*>(at + num_rows * kBlockColumns);
  const int32_t sum = quantise_block(block, reinterpret_cast<int8_t*>(at) + r * kBlockColumns, scales + r);
  if (format == WeightFormat::kInt4Asym) {
    scales[num_rows + r] = scales[r] * static_cast<float>(sum);
  } else {
    reinterpret_cast<int32_t*>(scales + num_rows)[r] = (format == WeightFormat::kInt8 ? -128 : -8) * sum;
  }
}

inline void pack_integers(const LinearWeights& weights, const float* x, int64_t num_rows, std::byte* panel) {
  const int64_t num_blocks = ceil_div(weights.in_features, kGroupColumns) * 2;
  for (int64_t r = 0; r < num_rows; ++r) {
    const NormalisedRow row = normalised_row(weights, x + r * weights.in_features);
    for (int64_t index = 0; index < num_blocks; ++index) {
      Block block = row.block(index);
      write_block(weights.format, block, panel + index * num_rows * kPanelBlockBytes, num_rows, r);
    }
  }
}

// One row as a panel of two: the row, and what its rounding has left.
inline void pack_refined(const LinearWeights& weights, const float* x, std::byte* panel) {
  const int64_t num_blocks = ceil_div(weights.in_features, kGroupColumns) * 2;
  const NormalisedRow row = normalised_row(weights, x);
  for (int64_t index = 0; index < num_blocks; ++index) {
    Block block = row.block(index);
    for (int64_t part = 0; part < 2; ++part) {
      write_block(weights.format, block, panel + index * 2 * kPanelBlockBytes, 2, part);
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
