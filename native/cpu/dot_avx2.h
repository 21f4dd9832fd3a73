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

// Dot products of 8 rows of a block (`half` of the tile's 16) with kRows activation rows.
template <int kRows>
inline void dot_int4(const std::byte* half, const int32_t* quads, __m256i (&dots)[kRows]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i words[kRows];
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const __m256i bytes = load_bytes(half + q * 64);
    const __m256i low = _mm256_and_si256(bytes, nibble);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256i pair = _mm256_add_epi16(_mm256_maddubs_epi16(low, _mm256_set1_epi32(quads[r * 8 + q])),
                                            _mm256_maddubs_epi16(high, _mm256_set1_epi32(quads[r * 8 + q + 4])));
      words[r] = q == 0 ? pair : _mm256_add_epi16(words[r], pair);
      settle(words[r]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) dots[r] = _mm256_madd_epi16(words[r], _mm256_set1_epi16(1));
}

// The same for int8, with the zero point removed: no start value is needed.
template <int kRows>
inline void dot_int8(const std::byte* half, const int32_t* quads, __m256i (&dots)[kRows]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) dots[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    const __m256i weights = _mm256_xor_si256(load_bytes(half + q * 64), _mm256_set1_epi8(-128));
    const __m256i magnitudes = _mm256_abs_epi8(weights);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256i activations = _mm256_sign_epi8(_mm256_set1_epi32(quads[r * 8 + q]), weights);
      const __m256i words = _mm256_maddubs_epi16(magnitudes, activations);
      dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
      settle(dots[r]);
    }
  }
}

// Adds one block of 8 outputs to the totals of every row. `scales` and `offsets` are the block's, of these 8 outputs.
template <WeightFormat kFormat, int kRows>
inline void add_half_block(const std::byte* half, __m256 scale, __m256 offset, const std::byte* panel,
                           __m256 (&totals)[kRows]) {
  const auto quads = reinterpret_cast<const int32_t*>(panel);
  const auto row_scales = reinterpret_cast<const float*>(panel + kRows * kBlockColumns);
  const auto starts = reinterpret_cast<const int32_t*>(row_scales + kRows);
  __m256i dots[kRows];
  if constexpr (kFormat == WeightFormat::kInt8) {
    dot_int8<kRows>(half, quads, dots);
  } else {
    dot_int4<kRows>(half, quads, dots);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kFormat == WeightFormat::kInt4) dots[r] = _mm256_add_epi32(dots[r], _mm256_set1_epi32(starts[r]));
    const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(row_scales[r]));
    totals[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r]), factor, totals[r]);
    if constexpr (kFormat == WeightFormat::kInt4Asym) {
      totals[r] = _mm256_fmadd_ps(offset, _mm256_set1_ps(row_scales[kRows + r]), totals[r]);
    }
  }
}

inline __m256 load_eight_halves(const std::byte* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

template <WeightFormat kFormat, int kRows>
struct DotInteger {
  static void run(const std::byte* tile, int64_t num_groups, const std::byte* panel, float* sums) {
    if constexpr (kRows <= 2) {
      run_halves<2>(tile, num_groups, panel, 0, sums);
    } else {
      // Totals, sums in flight and weights of both halves do not fit 16 registers. The second half's bytes lie in the
      // lines that the first one has brought.
      run_halves<1>(tile, num_groups, panel, 0, sums);
      run_halves<1>(tile, num_groups, panel, 1, sums);
    }
  }

 private:
  // Outputs [8 first_half, 8 (first_half + kHalves)).
  template <int kHalves>
  static void run_halves(const std::byte* tile, int64_t num_groups, const std::byte* panel, int first_half,
                         float* sums) {
    constexpr bool kIsAsym = kFormat == WeightFormat::kInt4Asym;
    constexpr size_t kBlockBytes = kFormat == WeightFormat::kInt8 ? kInt8BlockBytes : kInt4BlockBytes;
    __m256 totals[kHalves][kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kHalves * kRows; ++i) totals[i / kRows][i % kRows] = _mm256_setzero_ps();
    for (int64_t group = 0; group < num_groups; ++group) {
      if (first_half == 0) prefetch_ahead<group_bytes(kFormat)>(tile);
      for (int block = 0; block < 2; ++block) {
#pragma GCC unroll 2
        for (int i = 0; i < kHalves; ++i) {
          const int half = first_half + i;
          const std::byte* const scales = tile + 2 * kBlockBytes + block * kScaleBytes + half * 16;
          const __m256 scale = load_eight_halves(scales);
          const __m256 offset = kIsAsym ? load_eight_halves(scales + 2 * kScaleBytes) : _mm256_setzero_ps();
          add_half_block<kFormat, kRows>(tile + block * kBlockBytes + half * 32, scale, offset, panel, totals[i]);
        }
        panel += kRows * (kBlockColumns + 8);
      }
      tile += group_bytes(kFormat);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kHalves * kRows; ++i) {
      _mm256_storeu_ps(sums + i % kRows * kLanes + (first_half + i / kRows) * 8, totals[i / kRows][i % kRows]);
    }
  }
};

}  // namespace pilotfish::avx2
