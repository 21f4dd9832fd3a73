// Attention of 16 queries over 32 keys by one warp: how its results lie in the lanes, the softmax of a chunk, and how
// chunks are added. Scores, softmax and weighted values of a chunk are computed alone and then added to a running
// result, so that it makes no difference which warp computes which chunk.
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

/// Running maximum and sum of a query's softmax; the maximum in powers of two.
struct Softmax {
  float maximum;
  float sum;
};

/// What the two results are multiplied with when a part joins a total. A part without keys changes nothing.
struct Join {
  float keep;
  float take;
};

__device__ __forceinline__ Join join(Softmax& total, const Softmax& part) {
  if (part.sum == 0) return {1.0f, 0.0f};
  const float maximum = fmaxf(total.maximum, part.maximum);
  const Join factors = {exp2f(total.maximum - maximum), exp2f(part.maximum - maximum)};
  total = {maximum, fmaf(part.sum, factors.take, __fmul_rn(total.sum, factors.keep))};
  return factors;
}

__device__ __forceinline__ float joined(const Join& factors, float total, float part) {
  return fmaf(part, factors.take, __fmul_rn(total, factors.keep));
}

/// A warp's 16 queries: lane 4 g + t holds two columns, kept_column(i, 0) and (i, 1), of queries g (x, y) and g + 8.
template <int kDim>
struct Running {
  Softmax softmax[2];
  float4 values[kDim / 8];

  __device__ __forceinline__ void clear() {
    softmax[0] = softmax[1] = {-INFINITY, 0.0f};
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) values[i] = float4{};
  }
};

struct ScoreRule {
  float scale;
  float softcap;

  /// In powers of two.
  __device__ __forceinline__ float operator()(float score) const {
    if (softcap == 0) return __fmul_rn(score, scale * kLog2E);
    return __fmul_rn(softcap * kLog2E, tanhf(__fmul_rn(score, scale) / softcap));
  }
};

/// The column that a lane's running values have at index i.
template <CacheType kType, int kDim>
__device__ __forceinline__ int kept_column(int i, int which) {
  const int column = threadIdx.x % 4 * 2 + which;
  return kHasScales<kType> ? column * (kDim / 8) + i : i * 8 + column;
}

/// A chunk in shared memory: addresses of its rows, and of its scales where there are some (of values: times
/// kWeightScale).
struct ChunkPlace {
  uint32_t keys;
  uint32_t values;
  const float* key_scales;  // [kChunkKeys]
  const float* value_scales;
};

/// Address of a lane's row of two by two 8x8 matrices, for ldmatrix: queries; values, transposed.
template <int kRowBytes>
__device__ __forceinline__ int lane_rows() {
  const int lane = threadIdx.x % kWarpSize;
  return (lane % 8 + lane / 8 % 2 * 8) * kRowBytes + lane / 16 * 16;
}

/// scores[i]: keys 8 i + 2t, 8 i + 2t + 1 of queries g (x, y) and g + 8 (z, w).
using Scores = float4[kChunkKeys / 8];

__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
  value = __fadd_rn(value, __shfl_xor_sync(~0u, value, 1));
  return __fadd_rn(value, __shfl_xor_sync(~0u, value, 2));
}

/// Softmax of one query's scores; returns its maximum and sum and leaves the weights as pairs, times the values' scales
/// where there are some.
template <CacheType kType>
__device__ __forceinline__ Softmax soften(float (&scores)[kChunkKeys / 4], const KeyRange& seen, int first_key,
                                          const ScoreRule& rule, const float* value_scales,
                                          uint32_t (&weights)[kChunkKeys / 8]) {
  const int column = threadIdx.x % 4 * 2, lane_key = first_key + column;
  float maximum = -INFINITY;
#pragma unroll
  for (int i = 0; i < kChunkKeys / 4; ++i) {
    const int key = lane_key + i / 2 * 8 + i % 2;
    scores[i] = key >= seen.first && key <= seen.last ? rule(scores[i]) : -INFINITY;
    maximum = fmaxf(maximum, scores[i]);
  }
  maximum = quad_max(maximum);
  const float base = maximum == -INFINITY ? 0.0f : maximum;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChunkKeys / 8; ++i) {
    float2 weight = make_float2(exp2f(__fadd_rn(scores[2 * i], -base)), exp2f(__fadd_rn(scores[2 * i + 1], -base)));
    Pair<kType> pair;
    if constexpr (kHasScales<kType>) {
      const float2 scale = *reinterpret_cast<const float2*>(value_scales + i * 8 + column);
      round_to(pair, make_float2(__fmul_rn(weight.x, scale.x), __fmul_rn(weight.y, scale.y)));
    } else {
      round_to(pair, weight);
      weight = floats_of(pair);
    }
    sum = __fadd_rn(sum, __fadd_rn(weight.x, weight.y));
    weights[i] = reinterpret_cast<const uint32_t&>(pair);
  }
  return {maximum, quad_sum(sum)};
}

/// Weights of 16 queries for 16 keys, as a tensor-core operand each.
using Weights = uint32_t[kChunkKeys / 16][4];

/// Whether a running result has chunks already. Adding to an empty one gives what is added, zeros positive.
enum class Order { kFirst, kLater };

template <Order kOrder, int kDim>
__device__ __forceinline__ void add_chunk(Running<kDim>& running, int i, const float4& sums, const Join (&factors)[2]) {
  float4& total = running.values[i];
  if constexpr (kOrder == Order::kFirst) {
    total = make_float4(__fadd_rn(sums.x, 0), __fadd_rn(sums.y, 0), __fadd_rn(sums.z, 0), __fadd_rn(sums.w, 0));
    return;
  }
  total.x = joined(factors[0], total.x, sums.x);
  total.y = joined(factors[0], total.y, sums.y);
  total.z = joined(factors[1], total.z, sums.z);
  total.w = joined(factors[1], total.w, sums.w);
}

}  // namespace pilotfish::cuda
