// simd.h on AVX2 with FMA and F16C.
#pragma once

#include <immintrin.h>

#include "float16.h"

namespace pilotfish::avx2 {

struct Floats {
  __m256 low, high;
};

inline Floats zeros() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Floats broadcast(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline Floats load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void store(float* to, Floats value) {
  _mm256_storeu_ps(to, value.low);
  _mm256_storeu_ps(to + 8, value.high);
}

// The first `count` lanes, 0..16; the others are 0.
inline Floats load_first(const float* from, int64_t count) {
  alignas(64) float lanes[16] = {};
  for (int64_t lane = 0; lane < count; ++lane) lanes[lane] = from[lane];
  return load(lanes);
}
inline void store_first(float* to, Floats value, int64_t count) {
  alignas(64) float lanes[16];
  store(lanes, value);
  for (int64_t lane = 0; lane < count; ++lane) to[lane] = lanes[lane];
}

inline Floats load_halves(const uint16_t* from) {
  const auto source = reinterpret_cast<const __m128i*>(from);
  return {_mm256_cvtph_ps(_mm_loadu_si128(source)), _mm256_cvtph_ps(_mm_loadu_si128(source + 1))};
}
inline void store_halves(uint16_t* to, Floats value) {
  const auto target = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(target, _mm256_cvtps_ph(value.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(target + 1, _mm256_cvtps_ph(value.high, _MM_FROUND_TO_NEAREST_INT));
}
inline Floats load_bytes(const uint8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}

inline Floats add(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats sub(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats mul(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats div(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Floats min(Floats a, Floats b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Floats abs(Floats a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
// To the nearest integer, halves to even; |a| < 2^22.
inline Floats round(Floats a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, kMode), _mm256_round_ps(a.high, kMode)};
}
inline __m256 power_of_two(__m256 n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
inline Floats power_of_two(Floats n) { return {power_of_two(n.low), power_of_two(n.high)}; }
inline Floats zero_where_less(Floats x, Floats limit, Floats value) {
  return {_mm256_and_ps(_mm256_cmp_ps(x.low, limit.low, _CMP_NLT_UQ), value.low),
          _mm256_and_ps(_mm256_cmp_ps(x.high, limit.high, _CMP_NLT_UQ), value.high)};
}

// Pairs lane l with l + 8, then l + 4, l + 2, l + 1.
inline float sum_lanes(Floats value) {
  const __m256 eight = _mm256_add_ps(value.low, value.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// Of all lanes; NaN where one is. As integers the bits of magnitudes are ordered like these, with NaN above infinity.
inline float largest_magnitude(Floats a, Floats b) {
  const Floats c = abs(a), d = abs(b);
  const __m256i low = _mm256_max_epi32(_mm256_castps_si256(c.low), _mm256_castps_si256(d.low));
  const __m256i high = _mm256_max_epi32(_mm256_castps_si256(c.high), _mm256_castps_si256(d.high));
  const __m256i eight = _mm256_max_epi32(low, high);
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0b01001110));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0b10110001));
  return _mm_cvtss_f32(_mm_castsi128_ps(four));
}
inline float max_lane(Floats value) {
  const __m256 eight = _mm256_max_ps(value.low, value.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Writes integral lanes of -127..127 as bytes and returns their sum.
inline int32_t store_bytes(int8_t* to, Floats value) {
  const __m256i low = _mm256_cvtps_epi32(value.low), high = _mm256_cvtps_epi32(value.high);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0b11011000);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  const __m256i eight = _mm256_add_epi32(low, high);
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0b01001110));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0b10110001)));
}

}  // namespace pilotfish::avx2
