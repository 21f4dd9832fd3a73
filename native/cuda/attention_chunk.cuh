// Attention of 16 queries over 32 keys by one warp, the unit that every pass is put together from: scores, softmax and
// weighted values of a chunk are computed alone and then added to a running result, so that it makes no difference
// which warp computes which chunk.
#pragma once

#include "attention_rows.cuh"
#include "common.cuh"

namespace pilotfish::cuda {

inline constexpr int kTileQueries = 16;  // of one warp
inline constexpr int kChunkKeys = 32;
inline constexpr int kSplitChunks = 4;
inline constexpr int kSplitKeys = kChunkKeys * kSplitChunks;
inline constexpr float kLog2E = 1.4426950408889634f;

/// A row of head_dim f16 in shared memory, padded so that ldmatrix meets no bank twice. kDim is head_dim rounded up to
/// what is compiled; the columns between are zero.
template <int kDim>
inline constexpr int kRowBytes = kDim * 2 + 16;

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

/// A warp's 16 queries: lane 4 g + t holds columns 8 i + 2t, 8 i + 2t + 1 of queries g and g + 8.
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

/// Shared-memory addresses of a lane's ldmatrix rows.
template <int kDim>
struct LaneAddresses {
  int plain;        // queries; values, transposed
  int interleaved;  // keys

  __device__ LaneAddresses() {
    const int lane = threadIdx.x % kWarpSize;
    plain = (lane % 8 + lane / 8 % 2 * 8) * kRowBytes<kDim> + lane / 16 * 16;
    interleaved = (lane % 8 + lane / 16 * 8) * kRowBytes<kDim> + lane / 8 % 2 * 16;
  }
};

/// scores[i]: keys 8 i + 2t, 8 i + 2t + 1 of queries g (x, y) and g + 8 (z, w).
template <int kDim>
__device__ __forceinline__ void score_chunk(uint32_t queries, uint32_t keys, float4 (&scores)[kChunkKeys / 8]) {
#pragma unroll
  for (int i = 0; i < kChunkKeys / 8; ++i) scores[i] = float4{};
#pragma unroll
  for (int columns = 0; columns < kDim; columns += 16) {
    uint32_t query[4];
    load_matrices(query, queries + columns * 2);
#pragma unroll
    for (int i = 0; i < kChunkKeys / 16; ++i) {
      uint32_t key[4];
      load_matrices(key, keys + i * 16 * kRowBytes<kDim> + columns * 2);
      scores[2 * i] = multiply(query, key[0], key[1], scores[2 * i]);
      scores[2 * i + 1] = multiply(query, key[2], key[3], scores[2 * i + 1]);
    }
  }
}

__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
  value = __fadd_rn(value, __shfl_xor_sync(~0u, value, 1));
  return __fadd_rn(value, __shfl_xor_sync(~0u, value, 2));
}

/// Softmax of one query's scores; returns its maximum and sum and leaves the weights as f16 pairs.
__device__ __forceinline__ Softmax soften(float (&scores)[kChunkKeys / 4], const KeyRange& seen, int first_key,
                                          const ScoreRule& rule, uint32_t (&weights)[kChunkKeys / 8]) {
  const int lane_key = first_key + threadIdx.x % 4 * 2;
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
    const __half2 pair =
        __floats2half2_rn(exp2f(__fadd_rn(scores[2 * i], -base)), exp2f(__fadd_rn(scores[2 * i + 1], -base)));
    sum = __fadd_rn(sum, __fadd_rn(__low2float(pair), __high2float(pair)));
    weights[i] = reinterpret_cast<const uint32_t&>(pair);
  }
  return {maximum, quad_sum(sum)};
}

/// Adds a chunk of keys to the running result. `queries`, `keys`, `values`: shared memory, rows of kRowBytes;
/// `before_values` returns once the values have landed.
template <int kDim, class BeforeValues>
__device__ __forceinline__ void attend_chunk(uint32_t queries, uint32_t keys, uint32_t values, int first_key,
                                             const KeyRange (&seen)[2], const ScoreRule& rule, Running<kDim>& running,
                                             const BeforeValues& before_values) {
  const LaneAddresses<kDim> lane;
  float4 scores[kChunkKeys / 8];
  score_chunk<kDim>(queries + lane.plain, keys + lane.interleaved, scores);

  uint32_t weights[2][kChunkKeys / 8];
  Join factors[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float row[kChunkKeys / 4];
#pragma unroll
    for (int i = 0; i < kChunkKeys / 8; ++i) {
      row[2 * i] = half == 0 ? scores[i].x : scores[i].z;
      row[2 * i + 1] = half == 0 ? scores[i].y : scores[i].w;
    }
    const Softmax part = soften(row, seen[half], first_key, rule, weights[half]);
    factors[half] = join(running.softmax[half], part);
  }
  before_values();
#pragma unroll
  for (int columns = 0; columns < kDim; columns += 16) {
    float4 sums[2] = {};
#pragma unroll
    for (int i = 0; i < kChunkKeys / 16; ++i) {
      uint32_t value[4];
      load_matrices_transposed(value, values + lane.plain + i * 16 * kRowBytes<kDim> + columns * 2);
      const uint32_t operand[4] = {weights[0][2 * i], weights[1][2 * i], weights[0][2 * i + 1], weights[1][2 * i + 1]};
      sums[0] = multiply(operand, value[0], value[1], sums[0]);
      sums[1] = multiply(operand, value[2], value[3], sums[1]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float4& total = running.values[columns / 8 + i];
      total.x = joined(factors[0], total.x, sums[i].x);
      total.y = joined(factors[0], total.y, sums[i].y);
      total.z = joined(factors[1], total.z, sums[i].z);
      total.w = joined(factors[1], total.w, sums[i].w);
    }
  }
}

}  // namespace pilotfish::cuda
