// Dot products of one f16 or f32 weight tile with a panel of kRows rows: one chain of fused multiply-adds an output, in
// order of the columns. Written with simd.h only.
#pragma once

#include "linear_kernels.h"
#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

// How far ahead of the arithmetic weights are fetched.
inline constexpr int64_t kPrefetchBytes = 4096;

template <WeightFormat kFormat>
inline Floats load_weights(const std::byte* column) {
  if constexpr (kFormat == WeightFormat::kF16) {
    return load_halves(reinterpret_cast<const uint16_t*>(column));
  } else {
    return load(reinterpret_cast<const float*>(column));
  }
}

template <WeightFormat kFormat, int kRows>
struct DotFloat {
  static void run(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums) {
    constexpr int64_t kColumnBytes = group_bytes(kFormat) / kGroupColumns;
    auto x = reinterpret_cast<const float*>(panel);
    Floats totals[kRows];
    for (int r = 0; r < kRows; ++r) totals[r] = zeros();
    for (int64_t column = 0; column < num_groups * kGroupColumns; ++column) {
      if (column % 2 == 0) __builtin_prefetch(tile + kPrefetchBytes);
      const Floats weights = load_weights<kFormat>(tile);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) totals[r] = fma(broadcast(x[r]), weights, totals[r]);
      tile += kColumnBytes;
      x += kRows;
    }
    for (int r = 0; r < kRows; ++r) store(sums + r * kLanes, totals[r]);
  }
};

}  // namespace pilotfish::PILOTFISH_SIMD
