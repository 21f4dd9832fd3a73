// Integer dot products of one weight tile with a panel of kRows rows, AVX2. Products of unsigned and signed bytes are
// added in pairs to 16 bits, which is exact: 15 * 127 * 8 quads * 2 and, with the sign moved to the activation, 128 *
// 127 * 2 fit.
#pragma once

#include "linear_kernels.h"
#include "simd.h"

namespace pilotfish::avx2 {

inline constexpr int kMaxPanelRows = 4;
inline constexpr int64_t kFarPrefetchBytes = 8192;
inline constexpr int64_t kNearPrefetchBytes = 1024;

template <size_t kBytes>
inline void prefetch_ahead(const std::byte* from) {
#pragma GCC unroll 20
  for (size_t line = 0; line < kBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(from + kFarPrefetchBytes + line), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(from + kNearPrefetchBytes + line), _MM_HINT_T0);
  }
}

inline __m256i load_bytes(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

// Ends a step of a sum. Otherwise GCC adds all products in a tree, for which it first keeps each of them in memory.
inline void settle(__m256i& sum) { asm("" : "+x"(sum)); }

// Sums of products of a block's two halves of 8 outputs with kRows activation rows.
template <int kRows>
using HalfSums = __m256i[2][kRows];

// `words` are sums of 16 bits; each broadcast activation serves both halves. Clang makes calls of these from 2 rows on
// where it may, with the sums in memory.
template <int kRows>
[[gnu::always_inline]] inline void dot_int4(const std::byte* block, const int32_t* quads, HalfSums<kRows>& words) {
  const __m256i nibble = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const __m256i first = load_bytes(block + q * 64), second = load_bytes(block + q * 64 + 32);
    const __m256i low[2] = {_mm256_and_si256(first, nibble), _mm256_and_si256(second, nibble)};
    const __m256i high[2] = {_mm256_and_si256(_mm256_srli_epi16(first, 4), nibble),
                             _mm256_and_si256(_mm256_srli_epi16(second, 4), nibble)};
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256i low_quad = _mm256_set1_epi32(quads[r * 8 + q]);
      const __m256i high_quad = _mm256_set1_epi32(quads[r * 8 + q + 4]);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i product = _mm256_maddubs_epi16(low[half], low_quad);
        words[half][r] = q == 0 ? product : _mm256_add_epi16(words[half][r], product);
        settle(words[half][r]);
      }
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        words[half][r] = _mm256_add_epi16(words[half][r], _mm256_maddubs_epi16(high[half], high_quad));
        settle(words[half][r]);
      }
    }
  }
}

// The same for int8, with the zero point removed: no start value is needed.
template <int kRows>
[[gnu::always_inline]] inline void dot_int8(const std::byte* block, const int32_t* quads, HalfSums<kRows>& dots) {
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    const __m256i zero_point = _mm256_set1_epi8(-128);
    const __m256i weights[2] = {_mm256_xor_si256(load_bytes(block + q * 64), zero_point),
                                _mm256_xor_si256(load_bytes(block + q * 64 + 32), zero_point)};
    const __m256i magnitudes[2] = {_mm256_abs_epi8(weights[0]), _mm256_abs_epi8(weights[1])};
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256i quad = _mm256_set1_epi32(quads[r * 8 + q]);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i words = _mm256_maddubs_epi16(magnitudes[half], _mm256_sign_epi8(quad, weights[half]));
        const __m256i sums = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
        dots[half][r] = q == 0 ? sums : _mm256_add_epi32(dots[half][r], sums);
        settle(dots[half][r]);
      }
    }
  }
}

inline __m256 load_eight_halves(const std::byte* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Adds one block to the sums [kRows, 16 outputs], which stay in memory: there are no registers left for them. `scales`
// are the block's.
template <WeightFormat kFormat, int kRows>
[[gnu::always_inline]] inline void add_block(const std::byte* block, const std::byte* scales, const std::byte* panel,
                                             float* sums) {
  const auto quads = reinterpret_cast<const int32_t*>(panel);
  const auto row_scales = reinterpret_cast<const float*>(panel + kRows * kBlockColumns);
  const auto starts = reinterpret_cast<const int32_t*>(row_scales + kRows);
  HalfSums<kRows> dots;
  if constexpr (kFormat == WeightFormat::kInt8) {
    dot_int8<kRows>(block, quads, dots);
  } else {
    dot_int4<kRows>(block, quads, dots);
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m256 scale = load_eight_halves(scales + half * 16);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      __m256i dot = dots[half][r];
      if constexpr (kFormat != WeightFormat::kInt8) dot = _mm256_madd_epi16(dot, _mm256_set1_epi16(1));
      if constexpr (kFormat == WeightFormat::kInt4) dot = _mm256_add_epi32(dot, _mm256_set1_epi32(starts[r]));
      const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(row_scales[r]));
      float* const at = sums + r * kLanes + half * 8;
      __m256 total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, _mm256_loadu_ps(at));
      if constexpr (kFormat == WeightFormat::kInt4Asym) {
        const __m256 offset = load_eight_halves(scales + 2 * kScaleBytes + half * 16);
        total = _mm256_fmadd_ps(offset, _mm256_set1_ps(row_scales[kRows + r]), total);
      }
      _mm256_storeu_ps(at, total);
    }
  }
}

template <WeightFormat kFormat, int kRows>
struct DotInteger {
  static void run(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums) {
    constexpr size_t kBlockBytes = kFormat == WeightFormat::kInt8 ? kInt8BlockBytes : kInt4BlockBytes;
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kRows; ++i) _mm256_storeu_ps(sums + i * 8, _mm256_setzero_ps());
    for (int64_t group = 0; group < num_groups; ++group) {
      prefetch_ahead<group_bytes(kFormat)>(tile);
      for (int block = 0; block < 2; ++block) {
        add_block<kFormat, kRows>(tile + block * kBlockBytes, tile + 2 * kBlockBytes + block * kScaleBytes, panel,
                                  sums);
        panel += kRows * (kBlockColumns + 8);
      }
      tile += group_bytes(kFormat);
    }
  }
};

}  // namespace pilotfish::avx2
