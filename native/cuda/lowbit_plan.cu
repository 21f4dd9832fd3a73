// Sizes of a low-bit linear: its weight, its scratch and the number of thread blocks. Host arithmetic only.
#include <algorithm>

#include "kernels.h"
#include "lowbit_format.cuh"
#include "lowbit_resident.cuh"

namespace pilotfish::cuda {

LowbitPlan plan_lowbit_linear(const LowbitShape& shape, const DeviceLimits& limits) {
  const bool has_blocks_of_its_own = shape.format == WeightFormat::kF16 || fits_resident(shape, limits);
  if (has_blocks_of_its_own) return {unit_grid(shape).num_pieces, true};
  return {std::min(limits.num_sms, unit_grid(shape).num_units()), false};
}

bool leaves_copies(const LowbitShape& shape, const LowbitPlan& plan, int num_rows) {
  return plan.is_resident && shape.format != WeightFormat::kF16 && num_rows <= kMostCopiedRows;
}

size_t packed_lowbit_bytes(const LowbitShape& shape) {
  constexpr size_t kTile = 16, kGroup = 64, kInt4Bytes = 576, kInt4AsymBytes = 640, kInt8Bytes = 1088, kF16Bytes = 2048;
  const size_t tiles = (shape.out_features + kTile - 1) / kTile, groups = (shape.in_features + kGroup - 1) / kGroup;
  const size_t group_bytes = shape.format == WeightFormat::kInt4       ? kInt4Bytes
                             : shape.format == WeightFormat::kInt4Asym ? kInt4AsymBytes
                             : shape.format == WeightFormat::kInt8     ? kInt8Bytes
                                                                       : kF16Bytes;
  return tiles * groups * group_bytes;
}

size_t lowbit_weight_bytes(const LowbitShape& shape) {
  const UnitGrid grid = unit_grid(shape);
  return static_cast<size_t>(grid.num_pieces) * grid.num_chunks * piece_bytes(shape.format);
}

size_t lowbit_partial_bytes(const LowbitPlan& plan, int num_rows) {
  if (plan.is_resident) return 0;
  int padded_rows = 8;
  while (padded_rows < num_rows) padded_rows *= 2;
  return static_cast<size_t>(plan.num_blocks) * kPartialsPerBlock * kMaxGroupPieces * kPieceRows * padded_rows *
         sizeof(float);
}

cudaError_t read_device_limits(DeviceLimits* limits_out) {
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  cudaDeviceProp properties;
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, device); status != cudaSuccess) return status;
  *limits_out = {properties.multiProcessorCount, properties.sharedMemPerMultiprocessor,
                 properties.sharedMemPerBlockOptin, static_cast<size_t>(properties.l2CacheSize)};
  return cudaSuccess;
}

}  // namespace pilotfish::cuda
