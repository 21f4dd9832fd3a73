// simd.h on AVX-512 (F, BW, DQ, VL).
#pragma once

#include <immintrin.h>

#include "float16.h"

namespace pilotfish::avx512 {

using Floats = __m512;

inline Floats zeros() { return _mm512_setzero_ps(); }
inline Floats broadcast(float value) { return _mm512_set1_ps(value); }
inline Floats load(const float* from) { return _mm512_loadu_ps(from); }
inline void store(float* to, Floats value) { _mm512_storeu_ps(to, value); }

inline __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
// The first `count` lanes, 0..16; the others are 0.
inline Floats load_first(const float* from, int64_t count) { return _mm512_maskz_loadu_ps(first_lanes(count), from); }
inline void store_first(float* to, Floats value, int64_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), value);
}

inline Floats load_halves(const uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline void store_halves(uint16_t* to, Floats value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}
inline Floats load_bytes(const uint8_t* from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats abs(Floats a) { return _mm512_abs_ps(a); }
// To the nearest integer, halves to even; |a| < 2^22.
inline Floats round(Floats a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Floats power_of_two(Floats n) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
}
inline Floats zero_where_less(Floats x, Floats limit, Floats value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), value);
}

// Pairs lane l with l + 8, then l + 4, l + 2, l + 1.
inline float sum_lanes(Floats value) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(value), _mm512_extractf32x8_ps(value, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// Of all lanes; NaN where one is. As integers the bits of magnitudes are ordered like these, with NaN above infinity.
inline float largest_magnitude(Floats a, Floats b) {
  const __m512i larger = _mm512_max_epi32(_mm512_castps_si512(abs(a)), _mm512_castps_si512(abs(b)));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(larger))));
}
inline float max_lane(Floats value) { return _mm512_reduce_max_ps(value); }

// Writes integral lanes of -127..127 as bytes and returns their sum.
inline int32_t store_bytes(int8_t* to, Floats value) {
  const __m512i integers = _mm512_cvtps_epi32(value);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(integers));
  return _mm512_reduce_add_epi32(integers);
}

}  // namespace pilotfish::avx512
