// RMSNorm and the conversion to f16 in front of a linear: one thread block a row.
#include <algorithm>

#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kVectors = 4;  // float4 a thread keeps: rows of up to 4096 columns are read once

/// Sum over the block, the same in every thread; the order of additions is fixed.
__device__ float block_sum(float value) {
  __shared__ float warps[kWarps];
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if (threadIdx.x % kWarpSize == 0) warps[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += warps[warp];
  return sum;
}

__device__ __forceinline__ float sum_of_squares(const float4& v) {
  return fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, v.w * v.w)));
}

__device__ __forceinline__ void store_halves(__half* target, const float4& v) {
  const __half2 low = __halves2half2(saturated_half(v.x), saturated_half(v.y));
  const __half2 high = __halves2half2(saturated_half(v.z), saturated_half(v.w));
  *reinterpret_cast<uint2*>(target) =
      make_uint2(reinterpret_cast<const uint32_t&>(low), reinterpret_cast<const uint32_t&>(high));
}

__device__ __forceinline__ float4 normalised(const float4& v, float inverse, const float4& weight) {
  return make_float4(v.x * inverse * weight.x, v.y * inverse * weight.y, v.z * inverse * weight.z,
                     v.w * inverse * weight.w);
}

__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(const float* x, const float* weight, float epsilon, int num_vectors, __half* out) {
  let_dependents_start();
  wait_for_predecessors();
  const size_t row = static_cast<size_t>(blockIdx.x) * num_vectors;
  const float4* source = reinterpret_cast<const float4*>(x) + row;
  const float4* weights = reinterpret_cast<const float4*>(weight);
  __half* target = out + row * 4;
  float4 kept[kVectors];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int vector = threadIdx.x + i * kThreads;
    kept[i] = vector < num_vectors ? __ldcg(source + vector) : float4{};
    squares += sum_of_squares(kept[i]);
  }
  for (int vector = threadIdx.x + kVectors * kThreads; vector < num_vectors; vector += kThreads) {
    squares += sum_of_squares(__ldcg(source + vector));
  }
  const float inverse = rsqrtf(block_sum(squares) / static_cast<float>(num_vectors * 4) + epsilon);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int vector = threadIdx.x + i * kThreads;
    if (vector < num_vectors) store_halves(target + vector * 4, normalised(kept[i], inverse, __ldg(weights + vector)));
  }
  for (int vector = threadIdx.x + kVectors * kThreads; vector < num_vectors; vector += kThreads) {
    store_halves(target + vector * 4, normalised(__ldcg(source + vector), inverse, __ldg(weights + vector)));
  }
}

__global__ void __launch_bounds__(kThreads) to_halves_kernel(const float* x, size_t num_vectors, __half* out) {
  let_dependents_start();
  wait_for_predecessors();
  const size_t vector = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (vector < num_vectors) store_halves(out + vector * 4, __ldcg(reinterpret_cast<const float4*>(x) + vector));
}

/// Rows of any number of columns, padded with zeros.
__global__ void __launch_bounds__(kThreads)
    padded_rows_kernel(const float* x, const float* weight, float epsilon, int num_columns, __half* out) {
  let_dependents_start();
  wait_for_predecessors();
  const float* const source = x + static_cast<size_t>(blockIdx.x) * num_columns;
  const int width = padded_columns(num_columns);
  float squares = 0;
  for (int column = threadIdx.x; column < num_columns; column += kThreads) {
    const float value = __ldcg(source + column);
    squares = fmaf(value, value, squares);
  }
  const float inverse = weight ? rsqrtf(block_sum(squares) / static_cast<float>(num_columns) + epsilon) : 1.0f;
  for (int column = threadIdx.x; column < width; column += kThreads) {
    const float value = column < num_columns ? __ldcg(source + column) : 0.0f;
    const float factor = weight && column < num_columns ? inverse * __ldg(weight + column) : 1.0f;
    out[static_cast<size_t>(blockIdx.x) * width + column] = saturated_half(value * factor);
  }
}

}  // namespace

cudaError_t has_kernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, to_halves_kernel);
}

cudaError_t launch_rms_norm(const float* x, const float* weight, float epsilon, int num_rows, int num_columns,
                            void* halves_out, cudaStream_t stream) {
  if (num_rows < 1 || num_columns < 1) return cudaErrorInvalidValue;
  auto* const out = static_cast<__half*>(halves_out);
  if (num_columns != padded_columns(num_columns)) {
    return launch_early(padded_rows_kernel, dim3(num_rows), kThreads, 0, stream, x, weight, epsilon, num_columns, out);
  }
  if (weight)
    return launch_early(rms_norm_kernel, dim3(num_rows), kThreads, 0, stream, x, weight, epsilon, num_columns / 4, out);
  const size_t num_vectors = static_cast<size_t>(num_rows) * num_columns / 4;
  const auto num_blocks = static_cast<unsigned>((num_vectors + kThreads - 1) / kThreads);
  return launch_early(to_halves_kernel, dim3(num_blocks), kThreads, 0, stream, x, num_vectors, out);
}

}  // namespace pilotfish::cuda
