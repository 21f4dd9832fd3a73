// Sums and peaks over the thread block that works on a row of logits. Sums are of fixed-point numbers, so that no order
// of addition changes their bits.
#pragma once

#include "common.cuh"

namespace pilotfish::cuda {

inline constexpr int kRowThreads = 1024;
inline constexpr int kRowWarps = kRowThreads / kWarpSize;
inline constexpr int kMaxCandidates = 4096;
inline constexpr float kUnit = 1099511627776.0f;  // 2^40 is the weight of the likeliest token

using Sum = unsigned long long;

struct RowShared {
  Sum sums[3][kRowWarps];
  float peaks[2][kRowWarps];
  int num_candidates;
  float values[kMaxCandidates];
  int indices[kMaxCandidates];
};

__device__ __forceinline__ Sum fixed(float weight) { return __float2ull_rn(weight * kUnit); }

__device__ __forceinline__ Sum sum_of_warp(Sum value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

/// Every thread gets the sums over the block.
template <int kCount>
__device__ void sum_over_block(Sum (&values)[kCount], RowShared& shared) {
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const Sum sum = sum_of_warp(values[i]);
    if (lane == 0) shared.sums[i][warp] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = sum_of_warp(shared.sums[i][lane]);
  __syncthreads();
}

__device__ inline float peak_over_block(float value, float (&peaks)[kRowWarps]) {
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
    if (step == 1) break;
    if (lane == 0) peaks[warp] = value;
    __syncthreads();
    value = peaks[lane];
  }
  __syncthreads();
  return value;
}

}  // namespace pilotfish::cuda
