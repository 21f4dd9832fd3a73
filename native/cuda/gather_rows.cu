// Copies rows of f32 side by side: what a head reads of the target's rows, and of its own at the rows before.
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

}  // namespace

cudaError_t launch_gather_rows(const RowGather& gather, cudaStream_t stream) {
  if (gather.num_rows < 1 || gather.num_rows > kMaxRoundRows) return cudaErrorInvalidValue;
  const dim3 grid(gather.num_rows, (gather.num_columns + kThreads - 1) / kThreads, gather.num_parts);
  gather_rows_kernel<<<grid, kThreads, 0, stream>>>(gather);
  return cudaGetLastError();
}

}  // namespace pilotfish::cuda
