// A norm of each row, an activation of it and a residual, in f32: one thread block a row.
#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kKept = 16;  // columns of a thread in registers: rows of up to 4096 columns are read once

/// Sum over the block, the same in every thread; the order of additions is fixed.
__device__ float block_sum(float value, float (&warps)[kWarps]) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if (threadIdx.x % kWarpSize == 0) warps[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += warps[warp];
  __syncthreads();
  return sum;
}

/// This thread's columns of a row, the first of them kept.
struct ThreadColumns {
  const float* x;
  int num_columns;
  float kept[kKept];

  __device__ ThreadColumns(const float* row, int count) : x(row), num_columns(count) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int column = threadIdx.x + i * kThreads;
      kept[i] = column < num_columns ? __ldcg(x + column) : 0.0f;
    }
  }
  template <class Visit>
  __device__ __forceinline__ void visit(const Visit& visit_column) const {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int column = threadIdx.x + i * kThreads;
      if (column < num_columns) visit_column(column, kept[i]);
    }
    for (int column = threadIdx.x + kKept * kThreads; column < num_columns; column += kThreads) {
      visit_column(column, __ldcg(x + column));
    }
  }
};

__device__ __forceinline__ float activated(RowActivation activation, float x) {
  if (activation == RowActivation::kSilu) return x / (1.0f + expf(-x));
  if (activation == RowActivation::kGelu) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  return x;
}

__global__ void __launch_bounds__(kThreads) norm_activation_kernel(const __grid_constant__ NormActivation row) {
  __shared__ float warps[kWarps];
  let_dependents_start();
  wait_for_predecessors();
  const size_t first = static_cast<size_t>(blockIdx.x) * row.num_columns;
  const ThreadColumns columns(row.x + first, row.num_columns);
  const auto count = static_cast<float>(row.num_columns);
  float mean = 0, factor = 1;
  if (row.settings.norm == NormKind::kLayer) {
    float sum = 0;
    columns.visit([&](int, float value) { sum += value; });
    mean = block_sum(sum, warps) / count;
  }
  if (row.settings.norm != NormKind::kNone) {
    float squares = 0;
    columns.visit([&](int, float value) { squares = fmaf(value - mean, value - mean, squares); });
    factor = rsqrtf(block_sum(squares, warps) / count + row.settings.epsilon);
  }
  columns.visit([&](int column, float value) {
    float result = (value - mean) * factor;
    if (row.weight) result *= __ldg(row.weight + column);
    if (row.bias) result += __ldg(row.bias + column);
    result = activated(row.settings.activation, result);
    if (row.residual) result += __ldcg(row.residual + first + column);
    row.out[first + column] = result;
    if (row.halves_out) static_cast<__half*>(row.halves_out)[first + column] = saturated_half(result);
  });
}

}  // namespace

cudaError_t launch_norm_activation(const NormActivation& norm, cudaStream_t stream) {
  if (norm.num_rows < 1 || norm.num_columns < 1) return cudaErrorInvalidValue;
  return launch_early(norm_activation_kernel, dim3(norm.num_rows), kThreads, 0, stream, norm);
}

}  // namespace pilotfish::cuda
