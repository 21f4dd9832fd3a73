// Output tiles of `linear` on one instruction set: dot products from dot.h's kernels, then bias, SwiGLU and residual.
#pragma once

#include <utility>

#include "dot_float.h"
#include "linear_kernels.h"
#include "linear_pack.h"
#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

// Dot products of one weight tile with every row of a panel: sums[row * 16 + output].
using DotTile = void (*)(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums);

template <template <WeightFormat, int> typename Dot, WeightFormat kFormat, int... kRows>
DotTile select_rows(int64_t num_rows, std::integer_sequence<int, kRows...>) {
  static constexpr DotTile kTable[] = {Dot<kFormat, kRows + 1>::run...};
  return kTable[num_rows - 1];
}

inline DotTile select_dot(WeightFormat format, int64_t num_rows) {
  using Rows = std::make_integer_sequence<int, kMaxPanelRows>;
  switch (format) {
    case WeightFormat::kInt4:
      return select_rows<DotInteger, WeightFormat::kInt4>(num_rows, Rows());
    case WeightFormat::kInt4Asym:
      return select_rows<DotInteger, WeightFormat::kInt4Asym>(num_rows, Rows());
    case WeightFormat::kInt8:
      return select_rows<DotInteger, WeightFormat::kInt8>(num_rows, Rows());
    case WeightFormat::kF16:
      return select_rows<DotFloat, WeightFormat::kF16>(num_rows, Rows());
    case WeightFormat::kF32:
      break;
  }
  return select_rows<DotFloat, WeightFormat::kF32>(num_rows, Rows());
}

inline Floats add_columns(Floats value, const float* values, int64_t count) {
  return values == nullptr ? value : add(value, count == kLanes ? load(values) : load_first(values, count));
}

inline Floats silu(Floats x) { return div(x, add(broadcast(1.0f), exp(sub(zeros(), x)))); }

// What becomes of a tile's sums: outputs [output, output + 16) of every row of the panel.
inline void finish_tile(const LinearWeights& weights, const LinearRows& rows, int64_t tile, const float* sums,
                        const float* up_sums) {
  const int64_t output = tile * kTileRows;
  const int64_t num_outputs = weights.num_outputs();
  const int64_t count = lanes_left(num_outputs, output);
  const bool gated = weights.activation == Activation::kSwiglu;
  const float* const bias = weights.bias == nullptr ? nullptr : weights.bias + (gated ? 2 : 1) * output;
  for (int64_t r = 0; r < rows.num_rows; ++r) {
    Floats value = add_columns(load(sums + r * kLanes), bias, count);
    if (gated) {
      const float* const up_bias = bias == nullptr ? nullptr : bias + kTileRows;
      value = mul(silu(value), add_columns(load(up_sums + r * kLanes), up_bias, count));
    }
    const int64_t at = r * num_outputs + output;
    value = add_columns(value, rows.residual == nullptr ? nullptr : rows.residual + at, count);
    if (count == kLanes) {
      store(rows.y + at, value);
    } else {
      store_first(rows.y + at, value, count);
    }
  }
}

// Parts of a row in a panel: the row alone, or also what its rounding has left, which is added.
enum class RowParts { kOne = 1, kTwo = 2 };

template <RowParts kParts>
void multiply(const LinearWeights& weights, const std::byte* panel, const LinearRows& rows, int64_t first_tile,
              int64_t last_tile) {
  const int64_t num_groups = ceil_div(weights.in_features, kGroupColumns);
  const size_t stride = tile_bytes(weights.format, weights.in_features);
  const DotTile dot = select_dot(weights.format, rows.num_rows * static_cast<int64_t>(kParts));
  const bool gated = weights.activation == Activation::kSwiglu;
  const std::byte* packed = weights.packed + static_cast<size_t>(first_tile * (gated ? 2 : 1)) * stride;
  alignas(64) float sums[kMaxPanelRows * kLanes], up_sums[kMaxPanelRows * kLanes];
  const auto next_tile = [&](float* of_tile) {
    dot(packed, num_groups, panel, of_tile);
    if constexpr (kParts == RowParts::kTwo) store(of_tile, add(load(of_tile), load(of_tile + kLanes)));
    packed += stride;
  };
  for (int64_t tile = first_tile; tile < last_tile; ++tile) {
    next_tile(sums);
    if (gated) next_tile(up_sums);
    finish_tile(weights, rows, tile, sums, up_sums);
  }
}

inline constexpr LinearKernels kThisLinearKernels = {kMaxPanelRows, pack, multiply<RowParts::kOne>, pack_refined,
                                                     multiply<RowParts::kTwo>};

}  // namespace pilotfish::PILOTFISH_SIMD
