#include "sampling/philox_lanes.h"

#include "base/x86_features.h"
#include "sampling/random_stream.h"

#ifdef __x86_64__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace pilotfish {
namespace {

void run_portable(PhiloxLanes& lanes, std::array<uint32_t, 2> key) noexcept {
  for (size_t i = 0; i < kPhiloxLanes; ++i) {
    const PhiloxBlock block = philox({lanes.first, lanes.second, lanes.thirds[i], 0}, key);
    for (size_t word = 0; word < block.size(); ++word) lanes.words[word][i] = block[word];
  }
}

#ifdef __x86_64__
// A counter's word is the low half of a 64-bit lane; what stands in the high half plays no part.
__attribute__((target("avx512f"))) void run_avx512(PhiloxLanes& lanes, std::array<uint32_t, 2> key) noexcept {
  constexpr size_t kVectors = 2;
  const __m512i factors[2] = {_mm512_set1_epi64(kPhiloxFactors[0]), _mm512_set1_epi64(kPhiloxFactors[1])};
  __m512i a[kVectors], b[kVectors], c[kVectors], d[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    a[v] = _mm512_set1_epi64(lanes.first);
    b[v] = _mm512_set1_epi64(lanes.second);
    c[v] = _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(&lanes.thirds[8 * v])));
    d[v] = _mm512_setzero_si512();
  }
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const __m512i first_key = _mm512_set1_epi64(key[0]), second_key = _mm512_set1_epi64(key[1]);
    for (size_t v = 0; v < kVectors; ++v) {
      const __m512i first = _mm512_mul_epu32(a[v], factors[0]), second = _mm512_mul_epu32(c[v], factors[1]);
      a[v] = _mm512_xor_si512(_mm512_srli_epi64(second, 32), _mm512_xor_si512(b[v], first_key));
      b[v] = second;
      c[v] = _mm512_xor_si512(_mm512_srli_epi64(first, 32), _mm512_xor_si512(d[v], second_key));
      d[v] = first;
    }
    key[0] += kPhiloxSteps[0];
    key[1] += kPhiloxSteps[1];
  }
  for (size_t v = 0; v < kVectors; ++v) {
    const __m512i words[4] = {a[v], b[v], c[v], d[v]};
    for (size_t word = 0; word < 4; ++word) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(&lanes.words[word][8 * v]), _mm512_cvtepi64_epi32(words[word]));
    }
  }
}

__attribute__((target("avx2"))) void run_avx2(PhiloxLanes& lanes, std::array<uint32_t, 2> key) noexcept {
  constexpr size_t kVectors = 4;
  const __m256i factors[2] = {_mm256_set1_epi64x(kPhiloxFactors[0]), _mm256_set1_epi64x(kPhiloxFactors[1])};
  const __m256i low_halves = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  __m256i a[kVectors], b[kVectors], c[kVectors], d[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    a[v] = _mm256_set1_epi64x(lanes.first);
    b[v] = _mm256_set1_epi64x(lanes.second);
    c[v] = _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(&lanes.thirds[4 * v])));
    d[v] = _mm256_setzero_si256();
  }
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const __m256i first_key = _mm256_set1_epi64x(key[0]), second_key = _mm256_set1_epi64x(key[1]);
    for (size_t v = 0; v < kVectors; ++v) {
      const __m256i first = _mm256_mul_epu32(a[v], factors[0]), second = _mm256_mul_epu32(c[v], factors[1]);
      a[v] = _mm256_xor_si256(_mm256_srli_epi64(second, 32), _mm256_xor_si256(b[v], first_key));
      b[v] = second;
      c[v] = _mm256_xor_si256(_mm256_srli_epi64(first, 32), _mm256_xor_si256(d[v], second_key));
      d[v] = first;
    }
    key[0] += kPhiloxSteps[0];
    key[1] += kPhiloxSteps[1];
  }
  for (size_t v = 0; v < kVectors; ++v) {
    const __m256i words[4] = {a[v], b[v], c[v], d[v]};
    for (size_t word = 0; word < 4; ++word) {
      const __m256i packed = _mm256_permutevar8x32_epi32(words[word], low_halves);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(&lanes.words[word][4 * v]), _mm256_castsi256_si128(packed));
    }
  }
}
#elif defined(__aarch64__)
// The upper halves of the 64-bit products of four lanes; the lower ones to `low`.
inline uint32x4_t multiply(uint32x4_t lanes, uint32_t factor, uint32x4_t& low) {
  const uint32x4_t first = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(lanes), factor));
  const uint32x4_t second = vreinterpretq_u32_u64(vmull_high_n_u32(lanes, factor));
  low = vuzp1q_u32(first, second);
  return vuzp2q_u32(first, second);
}

void run_neon(PhiloxLanes& lanes, std::array<uint32_t, 2> key) noexcept {
  constexpr size_t kVectors = kPhiloxLanes / 4;
  uint32x4_t a[kVectors], b[kVectors], c[kVectors], d[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    a[v] = vdupq_n_u32(lanes.first);
    b[v] = vdupq_n_u32(lanes.second);
    c[v] = vld1q_u32(&lanes.thirds[4 * v]);
    d[v] = vdupq_n_u32(0);
  }
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (size_t v = 0; v < kVectors; ++v) {
      uint32x4_t first, second;
      const uint32x4_t first_high = multiply(a[v], kPhiloxFactors[0], first);
      const uint32x4_t second_high = multiply(c[v], kPhiloxFactors[1], second);
      a[v] = veorq_u32(second_high, veorq_u32(b[v], vdupq_n_u32(key[0])));
      b[v] = second;
      c[v] = veorq_u32(first_high, veorq_u32(d[v], vdupq_n_u32(key[1])));
      d[v] = first;
    }
    key[0] += kPhiloxSteps[0];
    key[1] += kPhiloxSteps[1];
  }
  for (size_t v = 0; v < kVectors; ++v) {
    const uint32x4_t words[4] = {a[v], b[v], c[v], d[v]};
    for (size_t word = 0; word < 4; ++word) vst1q_u32(&lanes.words[word][4 * v], words[word]);
  }
}
#endif

}  // namespace

void run_philox(PhiloxLanes& lanes, std::array<uint32_t, 2> key) noexcept {
#ifdef __x86_64__
  if (x86_features().avx512) return run_avx512(lanes, key);
  if (x86_features().avx2) return run_avx2(lanes, key);
#elif defined(__aarch64__)
  return run_neon(lanes, key);
#endif
  run_portable(lanes, key);
}

}  // namespace pilotfish
