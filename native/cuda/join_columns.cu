// Puts rows of f32 matrices side by side: what a head's first linear reads.
#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) join_columns_kernel(const __grid_constant__ JoinColumns join) {
  let_dependents_start();
  wait_for_predecessors();
  const int column = blockIdx.y * kThreads + threadIdx.x;
  if (column >= join.num_columns) return;
  const float* part = nullptr;
  int within = column, width = 0;
#pragma unroll
  for (int i = 0; i < kMostJoinedParts; ++i) {  // without an index into the parameters, which would copy them
    if (part == nullptr && i < join.num_parts) {
      if (within < join.widths[i]) {
        part = join.parts[i];
        width = join.widths[i];
      } else {
        within -= join.widths[i];
      }
    }
  }
  const float value = __ldcg(part + static_cast<size_t>(blockIdx.x) * width + within);
  const size_t index = static_cast<size_t>(blockIdx.x) * join.num_columns + column;
  join.out[index] = value;
  if (join.halves_out) static_cast<__half*>(join.halves_out)[index] = saturated_half(value);
}

}  // namespace

cudaError_t launch_join_columns(const JoinColumns& join, cudaStream_t stream) {
  int num_columns = 0;
  for (int i = 0; i < join.num_parts; ++i) num_columns += join.widths[i];
  const bool is_whole = join.num_parts >= 1 && join.num_parts <= kMostJoinedParts && num_columns == join.num_columns;
  if (!is_whole || join.num_rows < 1 || num_columns < 1) return cudaErrorInvalidValue;
  const dim3 grid(join.num_rows, (num_columns + kThreads - 1) / kThreads);
  return launch_early(join_columns_kernel, grid, kThreads, 0, stream, join);
}

}  // namespace pilotfish::cuda
