// Integer dot products of one weight tile with a panel of kRows rows, AVX-512 VNNI: a block's weights are unpacked once
// into eight registers and meet every row there; each row keeps its 16 outputs in one register.
#pragma once

#include "linear_kernels.h"
#include "simd.h"

namespace pilotfish::avx512 {

// 16 totals + 8 weights + scale + mask + 4 sums in flight fill the 32 registers.
inline constexpr int kMaxPanelRows = 16;
inline constexpr int kRowsInFlight = 4;
template <size_t kBytes, int kRows>
inline void prefetch_ahead(const std::byte* from) {
  // Into the second and the first level of cache. One row waits for memory, whose own prefetcher then does best when
  // little is asked for far ahead (1.1B shape: 14 % of a pass); more rows wait for arithmetic.
  constexpr int64_t kFar = kRows == 1 ? 1024 : 8192, kNear = kRows == 1 ? 256 : 1024;
#pragma GCC unroll 20
  for (size_t line = 0; line < kBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(from + kFar + line), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(from + kNear + line), _MM_HINT_T0);
  }
}

// One block of a tile: quad q holds columns 4q .. 4q + 3 of the 16 rows, unsigned.
struct BlockWeights {
  __m512i quads[8];

  template <WeightFormat kFormat>
  static BlockWeights load(const std::byte* block) {
    const auto packed = reinterpret_cast<const __m512i*>(block);
    BlockWeights weights;
    if constexpr (kFormat == WeightFormat::kInt8) {
#pragma GCC unroll 8
      for (int q = 0; q < 8; ++q) weights.quads[q] = _mm512_loadu_si512(packed + q);
    } else {
      const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const __m512i bytes = _mm512_loadu_si512(packed + q);
        weights.quads[q] = _mm512_and_si512(bytes, nibble);
        weights.quads[q + 4] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
      }
    }
    return weights;
  }
};

// sums += weights * the row's four activations, which the instruction itself broadcasts from memory. GCC 12 turns the
// intrinsics into a separate broadcast load and is a third slower.
inline void add_products(__m512i& sums, __m512i weights, const int32_t& quad) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(weights), "m"(quad));
}

// Adds kCount rows' block to their totals, their chains of dpbusd interleaved. Clang makes a call of it from 8 rows on
// where it may, with weights and totals in memory: 6 % of the time of a prompt.
template <int kRows, int kFirst, int kCount, bool kIsAsym>
[[gnu::always_inline]] inline void add_rows(const BlockWeights& weights, __m512 scale, __m512 offset,
                                            const std::byte* panel, __m512* totals) {
  const auto quads = reinterpret_cast<const int32_t*>(panel) + kFirst * 8;
  const auto row_scales = reinterpret_cast<const float*>(panel + kRows * kBlockColumns) + kFirst;
  const auto starts = reinterpret_cast<const int32_t*>(row_scales + kRows);
  __m512i dots[kCount];
#pragma GCC unroll 4
  for (int r = 0; r < kCount; ++r) dots[r] = kIsAsym ? _mm512_setzero_si512() : _mm512_set1_epi32(starts[r]);
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
#pragma GCC unroll 4
    for (int r = 0; r < kCount; ++r) {
      add_products(dots[r], weights.quads[q], quads[r * 8 + q]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kCount; ++r) {
    __m512& total = totals[kFirst + r];
    total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r]), _mm512_mul_ps(scale, _mm512_set1_ps(row_scales[r])), total);
    if constexpr (kIsAsym) total = _mm512_fmadd_ps(offset, _mm512_set1_ps(row_scales[kRows + r]), total);
  }
}

template <int kRows, bool kIsAsym, int kFirst = 0>
[[gnu::always_inline]] inline void add_block(const BlockWeights& weights, __m512 scale, __m512 offset,
                                             const std::byte* panel, __m512* totals) {
  constexpr int kCount = kRows - kFirst < kRowsInFlight ? kRows - kFirst : kRowsInFlight;
  add_rows<kRows, kFirst, kCount, kIsAsym>(weights, scale, offset, panel, totals);
  if constexpr (kFirst + kCount < kRows) {
    add_block<kRows, kIsAsym, kFirst + kCount>(weights, scale, offset, panel, totals);
  }
}

template <WeightFormat kFormat, int kRows>
struct DotInteger {
  static void run(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums) {
    constexpr bool kIsAsym = kFormat == WeightFormat::kInt4Asym;
    constexpr size_t kBlockBytes = kFormat == WeightFormat::kInt8 ? kInt8BlockBytes : kInt4BlockBytes;
    __m512 totals[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) totals[r] = _mm512_setzero_ps();
    for (int64_t group = 0; group < num_groups; ++group) {
      prefetch_ahead<group_bytes(kFormat), kRows>(tile);
      const auto scales = reinterpret_cast<const uint16_t*>(tile + 2 * kBlockBytes);
#pragma GCC unroll 2
      for (int block = 0; block < 2; ++block) {
        const auto weights = BlockWeights::load<kFormat>(tile + block * kBlockBytes);
        const __m512 scale = load_halves(scales + block * kTileRows);
        const __m512 offset = kIsAsym ? load_halves(scales + (2 + block) * kTileRows) : _mm512_setzero_ps();
        add_block<kRows, kIsAsym>(weights, scale, offset, panel, totals);
        panel += kRows * (kBlockColumns + 8);
      }
      tile += group_bytes(kFormat);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) store(sums + r * kLanes, totals[r]);
  }
};

}  // namespace pilotfish::avx512
