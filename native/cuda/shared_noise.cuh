// The noise that a draft and its target share, with the bits of `src/sampling/shared_noise.cpp`: the same 32-bit
// operations in the same order, none contracted.
#pragma once

#include <climits>

#include "common.cuh"
#include "device/round_kernels.h"

namespace pilotfish::cuda {

enum class Purpose : uint32_t { kNoise = 3, kBlockNoise = 4 };

struct RandomWords {
  uint32_t words[4];
};

/// Philox 4x32-10; see `src/sampling/random_stream.h`.
__device__ inline RandomWords philox(const RoundSettings& settings, int position, Purpose purpose, int index) {
  uint32_t c0 = static_cast<uint32_t>(position), c1 = static_cast<uint32_t>(purpose);
  uint32_t c2 = static_cast<uint32_t>(index), c3 = 0;
  uint32_t k0 = settings.key[0], k1 = settings.key[1];
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Exponentially distributed with mean 1.
__device__ inline float exponential(uint32_t word) {
  constexpr float kUnit = 0x1p-31f;
  constexpr int kSqrtHalf = 0x3F3504F3;
  const uint32_t odd = word >> 1 | 1;
  const float x = __fmul_rn(__int2float_rn(static_cast<int>(odd)), kUnit);
  const int bits = __float_as_int(__fmul_rn(__int2float_rn(static_cast<int>(0x80000000u - odd)), kUnit));
  const int exponent = (bits - kSqrtHalf) >> 23;
  const float mantissa = __int_as_float(bits - static_cast<int>(static_cast<uint32_t>(exponent) << 23));
  const float y = exponent == 0 ? -x : __fadd_rn(mantissa, -1.0f);
  float series = __fadd_rn(__fmul_rn(y, 0.08700430572f), -0.1426748622f);
  series = __fadd_rn(__fmul_rn(series, y), 0.1491476922f);
  series = __fadd_rn(__fmul_rn(series, y), -0.1657758477f);
  series = __fadd_rn(__fmul_rn(series, y), 0.199630637f);
  series = __fadd_rn(__fmul_rn(series, y), -0.2500133704f);
  series = __fadd_rn(__fmul_rn(series, y), 0.3333391074f);
  series = __fadd_rn(__fmul_rn(__fmul_rn(y, y), __fadd_rn(__fmul_rn(series, y), -0.5f)), y);
  return -__fadd_rn(__fmul_rn(__int2float_rn(exponent), 0.6931471806f), series);
}

/// Of the four ids from 4 * quad on.
__device__ inline void fill_noise(const RoundSettings& settings, int position, int quad, float (&noise)[4]) {
  constexpr int kBlock = 64, kQuads = kBlock / 4;
  const RandomWords of_block = philox(settings, position, Purpose::kBlockNoise, quad / kQuads);
  const RandomWords drawn = philox(settings, position, Purpose::kNoise, quad);
  const float least = __fmul_rn(exponential(of_block.words[0]), 1.0f / kBlock);
  const int place = static_cast<int>(of_block.words[1] % kBlock) - quad % kQuads * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) noise[i] = i == place ? least : __fadd_rn(exponential(drawn.words[i]), least);
}

/// What is added to a logit: temperature times Gumbel noise.
__device__ inline float gumbel(const RoundSettings& settings, float noise) {
  return -logf(noise) / settings.inverse_temperature;
}

/// Of one id.
__device__ inline float gumbel_of(const RoundSettings& settings, int position, int id) {
  float noise[4];
  fill_noise(settings, position, id / 4, noise);
  const int place = id % 4;
  return gumbel(settings, place == 0 ? noise[0] : place == 1 ? noise[1] : place == 2 ? noise[2] : noise[3]);
}

}  // namespace pilotfish::cuda
