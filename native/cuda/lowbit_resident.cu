// Low-bit linear of a small weight: a block, or a cluster of two, has 32 rows, all in shared memory before the
// predecessor has ended, and its warps divide K into slices. Their sums are added in order; no piece waits for another.
#include <algorithm>

#include "common.cuh"
#include "kernels.h"
#include "lowbit_few_rows.cuh"
#include "lowbit_format.cuh"
#include "lowbit_many_rows.cuh"
#include "lowbit_resident.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kRegistersPerSm = 65536;
/// With 56, two blocks of 13 warps leave room for one of nine on a multiprocessor.
template <class Format>
inline constexpr int kFewRowsRegisters = Format::kHasOffsets ? 72 : 56;
constexpr int kMostFewRowsRegisters = 72;

/// As many warps as two blocks on a multiprocessor do not have registers for.
template <class Format>
inline constexpr int kWarpsOfOneBlock = kRegistersPerSm / 2 / (kFewRowsRegisters<Format> * kWarpSize) + 1;

template <class Format, int kBlocks>
__global__ void __maxnreg__(kFewRowsRegisters<Format>) few_rows_kernel(const __grid_constant__ ResidentParams params) {
  extern __shared__ __align__(128) uint8_t shared[];
  let_dependents_start();
  if (blockIdx.x / kBlocks >= params.grid.pieces_of_group(blockIdx.y)) return;
  run_few_rows<Format, kBlocks>(params, shared);
}

template <class Format, class Shape>
__global__ void __launch_bounds__(Shape::kMostWarps* kWarpSize)
    many_rows_kernel(const __grid_constant__ ResidentParams params) {
  extern __shared__ __align__(128) uint8_t shared[];
  let_dependents_start();
  if (blockIdx.x >= params.grid.pieces_of_group(blockIdx.y)) return;
  ManyRows<Format, Shape>(params, shared).run();
}

template <class Format>
int resident_bytes(const LowbitShape& shape) {
  return ResidentLayout::kPieces + unit_grid<Format>(shape).num_chunks * Format::kPieceBytes;
}

int resident_bytes(const LowbitShape& shape) {
  switch (shape.format) {
    case WeightFormat::kInt4:
      return resident_bytes<Int4>(shape);
    case WeightFormat::kInt4Asym:
      return resident_bytes<Int4Asym>(shape);
    case WeightFormat::kF16:  // never resident
    case WeightFormat::kInt8:
      break;
  }
  return resident_bytes<Int8>(shape);
}

/// Rows [first, first + count) of a linear as one of its own.
LowbitLinear rows_of(const LowbitLinear& linear, int first, int count) {
  LowbitLinear part = linear;
  const int columns =
      linear.activation == Activation::kSwiGlu ? linear.shape.out_features / 2 : linear.shape.out_features;
  const size_t out = static_cast<size_t>(first) * columns, in = static_cast<size_t>(first) * linear.shape.in_features;
  const size_t element = linear.output_type == OutputType::kF16 ? 2 : 4;
  part.num_rows = count;
  part.x = static_cast<const __half*>(linear.x) + in;
  part.out = static_cast<uint8_t*>(linear.out) + out * element;
  if (linear.residual) part.residual = static_cast<const uint8_t*>(linear.residual) + out * element;
  if (linear.next.halves) part.next.halves = static_cast<__half*>(linear.next.halves) + out;
  if (linear.next.squares) part.next.squares += static_cast<size_t>(first) * num_square_parts(columns);
  if (linear.input_norm.squares) {
    part.input_norm.squares += static_cast<size_t>(first) * num_square_parts(linear.shape.in_features);
  }
  return part;
}

template <class Format>
ResidentParams params_of(const LowbitLinear& linear) {
  const UnitGrid grid = unit_grid<Format>(linear.shape);
  return {linear, grid, Slices::of(grid.num_chunks, resident_slices(grid.num_chunks)), {}};
}

/// As many rows at a time as shared memory allows: the bits are the same.
template <class Kernel>
cudaError_t launch_or_split(Kernel kernel, const ResidentParams& params, int num_blocks, int num_warps,
                            const DeviceLimits& limits, cudaStream_t stream) {
  const LowbitLinear& linear = params.linear;
  if (static_cast<size_t>(params.layout.bytes) <= limits.shared_bytes_per_block) {
    return launch_early_in_clusters(kernel, dim3(params.grid.pieces_per_group * num_blocks, params.grid.num_groups),
                                    num_blocks, num_warps * kWarpSize, params.layout.bytes, stream, params);
  }
  const int half = linear.num_rows / 2;
  if (half == 0) return cudaErrorInvalidConfiguration;
  const cudaError_t status = launch_resident_linear(rows_of(linear, 0, half), limits, stream);
  if (status != cudaSuccess) return status;
  return launch_resident_linear(rows_of(linear, half, linear.num_rows - half), limits, stream);
}

/// Where a warp has more than one chunk, two blocks on a multiprocessor would take twice as long: they get none of the
/// same linear beside them, and are halved if the device has room for twice as many.
template <class Format>
cudaError_t launch_few_rows(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  ResidentParams params = params_of<Format>(linear);
  const Slices& slices = params.slices;
  const bool is_long = slices.most_chunks() > 1;
  bool has_clusters = false;
  if (const cudaError_t status = starts_early(few_rows_kernel<Format, 2>, &has_clusters); status != cudaSuccess) {
    return status;
  }
  if (has_clusters && is_long && params.grid.num_pieces * 2 <= limits.num_sms) {
    params.layout = few_rows_layout<Format>(slices, 2, linear.num_rows);
    const int half = static_cast<int>(limits.shared_bytes_per_sm / 2);
    params.layout.bytes = std::max(params.layout.bytes, half);
    return launch_or_split(few_rows_kernel<Format, 2>, params, 2, slices.per_block(2) + 1, limits, stream);
  }
  params.layout = few_rows_layout<Format>(slices, 1, linear.num_rows);
  const int num_warps = std::max(slices.count + 1, is_long ? kWarpsOfOneBlock<Format> : 0);
  return launch_or_split(few_rows_kernel<Format, 1>, params, 1, num_warps, limits, stream);
}

template <class Format, int kTokenTiles>
cudaError_t launch_many_rows(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  using Shape = ManyRowsShape<kTokenTiles>;
  ResidentParams params = params_of<Format>(linear);
  params.layout = many_rows_layout<Format, Shape>(params.slices, linear.num_rows);
  return launch_or_split(many_rows_kernel<Format, Shape>, params, 1, Shape::num_warps(params.slices), limits, stream);
}

template <class Format>
cudaError_t launch_for_rows(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  if (linear.num_rows <= kFewRows) return launch_few_rows<Format>(linear, limits, stream);
  if (linear.num_rows <= 16) return launch_many_rows<Format, 2>(linear, limits, stream);
  if (linear.num_rows <= 32) return launch_many_rows<Format, 4>(linear, limits, stream);
  return launch_many_rows<Format, 8>(linear, limits, stream);
}

}  // namespace

bool fits_resident(const LowbitShape& shape, const DeviceLimits& limits) {
  constexpr int kReservedBytes = 1024;  // by the driver, a block
  constexpr size_t kMostWeightBytes = 10 << 20;
  if (lowbit_weight_bytes(shape) > kMostWeightBytes) return false;
  const size_t block_bytes = resident_bytes(shape) + kReservedBytes;
  const UnitGrid grid = unit_grid(shape);
  const int block_registers = (resident_slices(grid.num_chunks) + 1) * kWarpSize * kMostFewRowsRegisters;
  const size_t blocks_per_sm =
      std::min<size_t>(limits.shared_bytes_per_sm / 2 / block_bytes, kRegistersPerSm / block_registers);
  return static_cast<size_t>(grid.num_pieces) <= blocks_per_sm * limits.num_sms;
}

cudaError_t launch_resident_linear(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  switch (linear.shape.format) {
    case WeightFormat::kInt4:
      return launch_for_rows<Int4>(linear, limits, stream);
    case WeightFormat::kInt4Asym:
      return launch_for_rows<Int4Asym>(linear, limits, stream);
    case WeightFormat::kF16:  // never resident
    case WeightFormat::kInt8:
      break;
  }
  return launch_for_rows<Int8>(linear, limits, stream);
}

}  // namespace pilotfish::cuda
