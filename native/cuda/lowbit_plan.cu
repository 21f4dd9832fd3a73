// How the K sums of a low-bit linear are cut over warps and thread blocks. Host arithmetic only.
#include <algorithm>

#include "kernels.h"
#include "lowbit_format.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kWarpsPerBlock = 8;

int ceil_divide(int a, int b) { return (a + b - 1) / b; }

int num_chunks(const LowbitShape& shape) {
  return ceil_divide(shape.in_features, shape.format == WeightFormat::kInt4 ? Int4::kChunkColumns : Int8::kChunkColumns);
}

int num_row_pieces(const LowbitShape& shape) { return ceil_divide(shape.out_features, kPieceRows); }

}  // namespace

LowbitPlan plan_lowbit_linear(const LowbitShape& shape, const DeviceLimits& limits) {
  const int row_blocks = ceil_divide(num_row_pieces(shape), kWarpsPerBlock);
  const int splits = std::clamp(limits.num_sms / row_blocks, 1, num_chunks(shape));
  return {1, splits};
}

size_t lowbit_partial_bytes(const LowbitShape& shape, const LowbitPlan& plan, int num_rows) {
  if (plan.splits == 1) return 0;
  int padded_rows = 8;
  while (padded_rows < num_rows) padded_rows *= 2;
  return static_cast<size_t>(num_row_pieces(shape)) * plan.splits * kPieceRows * padded_rows * sizeof(float);
}

size_t lowbit_arrival_count(const LowbitShape& shape) { return num_row_pieces(shape); }

cudaError_t read_device_limits(DeviceLimits* limits_out) {
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  cudaDeviceProp properties;
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, device); status != cudaSuccess) return status;
  *limits_out = {properties.multiProcessorCount, properties.sharedMemPerMultiprocessor, properties.sharedMemPerBlockOptin};
  return cudaSuccess;
}

}  // namespace pilotfish::cuda
