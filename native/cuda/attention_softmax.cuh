// The softmax of 16 queries over a split of 128 keys, a chunk of 32 at a time, as tensor cores lay it out, and how
// splits are added. A split has one maximum and one sum: what computes its chunks, and where, makes no difference to a
// bit.
//
// Lane 4 g + t of a warp has columns 2t and 2t + 1 of every eight, of queries g and g + 8: its two halves.
#pragma once

#include "attention_cache.cuh"
#include "common.cuh"

namespace pilotfish::cuda {

inline constexpr int kTileQueries = 16;  // of one warp
inline constexpr int kChunkKeys = 32;
inline constexpr int kSplitChunks = 4;
inline constexpr int kSplitKeys = kChunkKeys * kSplitChunks;
inline constexpr float kLog2E = 1.4426950408889634f;

/// A query in shared memory, of two bytes a column, padded as a row of the cache is.
template <int kDim>
inline constexpr int kQueryBytes = kDim * 2 + 16;

__device__ __forceinline__ float power_of_two(float exponent) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
  return power;
}

/// Running maximum and sum of a query's softmax; the maximum in powers of two.
struct Softmax {
  float maximum = -INFINITY;
  float sum = 0;
};

/// Offset of a lane's row of two by two 8x8 matrices, for ldmatrix: queries and weights; values, transposed.
template <int kRowBytes>
__device__ __forceinline__ int lane_rows() {
  const int lane = threadIdx.x % kWarpSize;
  return (lane % 8 + lane / 8 % 2 * 8) * kRowBytes + lane / 16 * 16;
}

/// What the two results are multiplied with when a part joins a total. A part without keys changes nothing.
struct Join {
  float keep;
  float take;
};

__device__ __forceinline__ Join join(Softmax& total, const Softmax& part) {
  if (part.sum == 0) return {1.0f, 0.0f};
  const float maximum = fmaxf(total.maximum, part.maximum);
  const Join factors = {power_of_two(total.maximum - maximum), power_of_two(part.maximum - maximum)};
  total = {maximum, fmaf(part.sum, factors.take, __fmul_rn(total.sum, factors.keep))};
  return factors;
}

__device__ __forceinline__ float joined(const Join& factors, float total, float part) {
  return fmaf(part, factors.take, __fmul_rn(total, factors.keep));
}

/// scores[half][2 i + j]: of query g + 8 half for key 8 i + 2t + j of a chunk.
using Scores = float[2][kChunkKeys / 4];
/// Weights of 16 queries for 16 keys, a tensor-core operand.
using Weights = uint32_t[4];

/// From products of queries and keys to powers of two.
struct ScoreRule {
  float scale;
  float softcap;
  float factor;  // what a score, capped where there is a cap, is multiplied with

  __device__ explicit ScoreRule(const AttentionShape& shape)
      : scale(shape.scale), softcap(shape.softcap), factor((shape.softcap == 0 ? shape.scale : 1.0f) * kLog2E) {}

  __device__ __forceinline__ void cap(float (&scores)[kChunkKeys / 4]) const {
    if (softcap == 0) return;
    const float doubled = __fdividef(2 * kLog2E * scale, softcap);
#pragma unroll
    for (float& score : scores) {  // tanh(x) = 1 - 2 / (exp(2 x) + 1)
      score = softcap * (1 - __fdividef(2.0f, power_of_two(score * doubled) + 1));
    }
  }
};

/// Hides what a query does not see of a chunk.
__device__ __forceinline__ void hide(float (&scores)[kChunkKeys / 4], const KeyRange& seen, int first_key) {
  const int first = first_key + threadIdx.x % 4 * 2 - seen.first;
  const unsigned count = max(seen.last - seen.first + 1, 0);
#pragma unroll
  for (int i = 0; i < kChunkKeys / 4; ++i) {
    if (static_cast<unsigned>(first + i / 2 * 8 + i % 2) >= count) scores[i] = -INFINITY;
  }
}

__device__ __forceinline__ float largest(const float (&scores)[kChunkKeys / 4]) {
  float most = scores[0];
#pragma unroll
  for (int i = 1; i < kChunkKeys / 4; ++i) most = fmaxf(most, scores[i]);
  return most;
}

/// Of the four lanes that share a query.
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
  value = __fadd_rn(value, __shfl_xor_sync(~0u, value, 1));
  return __fadd_rn(value, __shfl_xor_sync(~0u, value, 2));
}

/// Makes a query's scores of a chunk weights, as pairs, times the values' scales where there are some. `maximum`: of
/// the split, times `factor`. Returns what the lane has of their sum.
template <CacheType kType>
__device__ __forceinline__ float soften(const float (&scores)[kChunkKeys / 4], float factor, float maximum,
                                        const float* value_scales, uint32_t (&pairs)[kChunkKeys / 8]) {
  const float base = maximum == -INFINITY ? 0.0f : maximum;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChunkKeys / 8; ++i) {
    float2 weight = make_float2(power_of_two(__fmaf_rn(scores[2 * i], factor, -base)),
                                power_of_two(__fmaf_rn(scores[2 * i + 1], factor, -base)));
    sum = __fadd_rn(sum, __fadd_rn(weight.x, weight.y));
    if constexpr (kHasScales<kType>) {
      const float2 scale = *reinterpret_cast<const float2*>(value_scales + i * 8 + threadIdx.x % 4 * 2);
      weight = make_float2(__fmul_rn(weight.x, scale.x), __fmul_rn(weight.y, scale.y));
    }
    const __half2 pair = __float22half2_rn(weight);
    pairs[i] = reinterpret_cast<const uint32_t&>(pair);
  }
  return sum;
}

}  // namespace pilotfish::cuda
