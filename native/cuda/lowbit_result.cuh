// The arithmetic at the end of a low-bit linear, in one place and with its roundings written out: a row has the same
// bits whichever kernel ends it.
#pragma once

#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

/// `scale`: 1 / rms of the token's input, 1 without a norm; `bias`: 0 without one.
__device__ __forceinline__ float scaled(float sum, float scale, float bias) { return fmaf(sum, scale, bias); }

__device__ __forceinline__ float swiglu(float gate, float up) {
  return __fmul_rn(__fdividef(gate, 1.0f + __expf(-gate)), up);
}

/// A result as the next linear reads it; `weight`: of that one's norm, 1 without.
__device__ __forceinline__ __half half_for_next(float value, float weight) {
  return saturated_half(__fmul_rn(value, weight));
}

/// Sum of the squares of a piece's 32 columns, a lane each; for all lanes.
__device__ __forceinline__ float sum_squares(float value) {
  float squares = __fmul_rn(value, value);
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, offset));
  }
  return squares;
}

// The same sum where a lane has the columns of an mma result, (g, g + 8) of two row tiles, and lanes 4 apart are
// neighbours: pairs of the two row tiles, of g and g + 8 of them, of all lanes.

__device__ __forceinline__ float pair_of_squares(float tile0, float tile1) {
  return __fadd_rn(__fmul_rn(tile0, tile0), __fmul_rn(tile1, tile1));
}
__device__ __forceinline__ float sum_lane_squares(float squares) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 2; offset /= 2) {
    squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, offset));
  }
  return squares;
}

/// 1 / rms of a token whose input is a copy for a norm, by four lanes, which all return it. All lanes of a warp call
/// it. kAtOnce vectors of a lane are on their way together; it changes no order.
template <int kAtOnce>
__device__ __forceinline__ float input_scale(const LowbitLinear& linear, int token) {
  const int lane = threadIdx.x % kWarpSize, columns = linear.shape.in_features;
  const int num_vectors = num_square_parts(columns) / 4;
  const auto* source = reinterpret_cast<const float4*>(linear.input_norm.squares) + token * num_vectors;
  float sum = 0;
#pragma unroll 1
  for (int first = lane % 4; first < num_vectors; first += 4 * kAtOnce) {
    float4 parts[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      parts[i] = first + 4 * i < num_vectors ? __ldcg(source + first + 4 * i) : float4{};
    }
#pragma unroll
    for (const float4& part : parts) {
      sum = __fadd_rn(sum, __fadd_rn(__fadd_rn(part.x, part.y), __fadd_rn(part.z, part.w)));
    }
  }
  sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 1));
  sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, 2));
  const float mean = __fdividef(sum, static_cast<float>(columns));
  return __fmul_rn(rsqrtf(__fadd_rn(mean, linear.input_norm.epsilon)), linear.input_norm.unscale);
}

}  // namespace pilotfish::cuda
