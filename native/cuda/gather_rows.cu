// Copies rows of f32 one below the other: what a head reads of the target's rows, and of its own at the rows before;
// and the rows that a graph picks.
#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) gather_rows_kernel(const __grid_constant__ RowGather gather) {
  const int row = blockIdx.x, column = blockIdx.y * kThreads + threadIdx.x;
  if (column >= gather.num_columns) return;
  const size_t num_columns = gather.num_columns;
  const size_t source = gather.device_rows ? __ldcg(gather.device_rows + row) : gather.rows[row];
  gather.target[blockIdx.z * gather.target_stride + row * num_columns + column] =
      gather.source[blockIdx.z * gather.source_stride + source * num_columns + column];
}

__global__ void __launch_bounds__(kThreads) pick_rows_kernel(const __grid_constant__ PickedRows picked) {
  let_dependents_start();
  wait_for_predecessors();
  const int column = blockIdx.y * kThreads + threadIdx.x;
  if (column >= picked.num_columns) return;
  const int row = __ldcg(picked.rows + blockIdx.x);
  const size_t num_columns = picked.num_columns;
  const bool exists = row >= 0 && row < picked.num_source_rows;
  picked.out[blockIdx.x * num_columns + column] =
      exists ? __ldcg(picked.source + row * num_columns + column) : __uint_as_float(kNotWritten);
}

}  // namespace

cudaError_t launch_pick_rows(const PickedRows& picked, cudaStream_t stream) {
  if (picked.num_rows < 1 || picked.num_columns < 1) return cudaErrorInvalidValue;
  const dim3 grid(picked.num_rows, (picked.num_columns + kThreads - 1) / kThreads);
  return launch_early(pick_rows_kernel, grid, kThreads, 0, stream, picked);
}

cudaError_t launch_gather_rows(const RowGather& gather, cudaStream_t stream) {
  if (gather.num_rows < 1 || gather.num_rows > kMaxRoundRows) return cudaErrorInvalidValue;
  const dim3 grid(gather.num_rows, (gather.num_columns + kThreads - 1) / kThreads, gather.num_parts);
  gather_rows_kernel<<<grid, kThreads, 0, stream>>>(gather);
  return cudaGetLastError();
}

}  // namespace pilotfish::cuda
