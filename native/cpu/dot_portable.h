// Integer dot products of one weight tile with a panel of kRows rows, in plain C++.
#pragma once

#include "linear_kernels.h"
#include "simd.h"

namespace pilotfish::portable {

inline constexpr int kMaxPanelRows = 4;

// The 32 columns of a block as bytes [column][16 rows], still with their zero point.
template <WeightFormat kFormat>
void unpack_block(const uint8_t* block, uint8_t (&weights)[kBlockColumns][kTileRows]) {
  constexpr bool kIsInt8 = kFormat == WeightFormat::kInt8;
  for (int64_t quad = 0; quad < (kIsInt8 ? 8 : 4); ++quad) {
    for (int64_t row = 0; row < kTileRows; ++row) {
      for (int64_t j = 0; j < 4; ++j) {
        const uint8_t byte = block[(quad * kTileRows + row) * 4 + j];
        if constexpr (kIsInt8) {
          weights[4 * quad + j][row] = byte;
        } else {
          weights[4 * quad + j][row] = byte & 15;
          weights[16 + 4 * quad + j][row] = byte >> 4;
        }
      }
    }
  }
}

// sum over the block of weight * activation, 16 outputs; `start` is minus zero point times the activations' sum.
inline Floats dot_block(const uint8_t (&weights)[kBlockColumns][kTileRows], const int8_t* activations, int32_t start) {
  int32_t sums[kTileRows];
  for (int64_t row = 0; row < kTileRows; ++row) sums[row] = start;
  for (int64_t column = 0; column < kBlockColumns; ++column) {
    for (int64_t row = 0; row < kTileRows; ++row) {
      sums[row] += static_cast<int32_t>(weights[column][row]) * activations[column];
    }
  }
  return make([&](int row) { return static_cast<float>(sums[row]); });
}

template <WeightFormat kFormat, int kRows>
struct DotInteger {
  static void run(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums) {
    constexpr bool kIsAsym = kFormat == WeightFormat::kInt4Asym;
    constexpr size_t kBlockBytes = kFormat == WeightFormat::kInt8 ? kInt8BlockBytes : kInt4BlockBytes;
    Floats totals[kRows] = {};
    for (int64_t block = 0; block < 2 * num_groups; ++block) {
      const std::byte* const group = tile + static_cast<size_t>(block / 2) * group_bytes(kFormat);
      const auto scales = reinterpret_cast<const uint16_t*>(group + 2 * kBlockBytes) + block % 2 * kTileRows;
      uint8_t weights[kBlockColumns][kTileRows];
      unpack_block<kFormat>(reinterpret_cast<const uint8_t*>(group + block % 2 * kBlockBytes), weights);
      const auto row_scales = reinterpret_cast<const float*>(panel + kRows * kBlockColumns);
      const auto starts = reinterpret_cast<const int32_t*>(row_scales + kRows);
      for (int r = 0; r < kRows; ++r) {
        const auto activations = reinterpret_cast<const int8_t*>(panel) + r * kBlockColumns;
        const Floats dot = dot_block(weights, activations, kIsAsym ? 0 : starts[r]);
        totals[r] = fma(dot, mul(load_halves(scales), broadcast(row_scales[r])), totals[r]);
        if constexpr (kIsAsym) {
          totals[r] = fma(load_halves(scales + 2 * kTileRows), broadcast(row_scales[kRows + r]), totals[r]);
        }
      }
      panel += kRows * (kBlockColumns + 8);
    }
    for (int r = 0; r < kRows; ++r) store(sums + r * kLanes, totals[r]);
  }
};

}  // namespace pilotfish::portable
