// f16 activations -> the operands of prefill_linear.cu: prefill_operands.cuh has the order.
#include "common.cuh"
#include "lowbit_combine.cuh"
#include "prefill_operands.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kWarps = kGroupTokenTiles;  // a token tile each
constexpr int kThreads = kWarps * kWarpSize;

/// A token's columns of a chunk in shared memory, padded: ldmatrix then meets no bank twice.
template <class Format>
constexpr int kRowBytes = Format::kChunkColumns * 2 + 16;

/// A token group's columns of a chunk.
template <class Format>
__device__ void load_rows(const LowbitLinear& linear, uint32_t target) {
  constexpr int kRowVectors = Format::kChunkColumns / 8;
  const int k = linear.shape.in_features, column = blockIdx.x * Format::kChunkColumns + threadIdx.x % kRowVectors * 8;
  target += threadIdx.x % kRowVectors * 16;
#pragma unroll
  for (int row = threadIdx.x / kRowVectors; row < kGroupTokens; row += kThreads / kRowVectors) {
    const int token = blockIdx.y * kGroupTokens + row;
    const bool exists = token < linear.num_rows && column < k;
    const auto* source = static_cast<const __half*>(linear.x) + (exists ? static_cast<size_t>(token) * k + column : 0);
    copy_16(target + row * kRowBytes<Format>, source, exists ? 16 : 0);
  }
  commit_copies();
  wait_for_copies<0>();
}

/// This lane's 16 bytes of its warp's token tile for wgmma: columns 8 lane / 8 and what follows, of f16
/// weights those that half_format.cuh gives to these places.
template <class Format>
__device__ uint4 wide_vector(const uint8_t* tile) {
  const int lane = threadIdx.x % kWarpSize;
  const uint8_t* const row = tile + lane % 8 * kRowBytes<Format>;
  if constexpr (kIsHalf<Format>) {
    const auto* words = reinterpret_cast<const uint32_t*>(row) + lane / 16 * 2 + lane / 8 % 2;
    return make_uint4(words[0], words[4], words[8], words[12]);
  } else {
    return *reinterpret_cast<const uint4*>(row + lane / 8 * 16);
  }
}

/// 32 columns of this warp's token tile, and their sums.
template <class Format>
__device__ void write_block(const uint8_t* rows, int block, uint8_t* target) {
  using Operands = ChunkOperands<Format>;
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const uint8_t* const tile = rows + warp * kTokenTile * kRowBytes<Format> + block * kBlockColumns * 2;
  [[maybe_unused]] uint4* const place = reinterpret_cast<uint4*>(target + Operands::tile(block, warp)) + lane;
  if constexpr (kHasWgmma) {
    const int at = activation_place(warp * kTokenTile + lane % 8, block * 4 + lane / 8, kGroupTokens);
    *reinterpret_cast<uint4*>(target + at) = wide_vector<Format>(tile);
  } else if constexpr (kIsHalf<Format>) {
    *place = *reinterpret_cast<const uint4*>(tile + lane / 4 * kRowBytes<Format> + lane % 4 * 16);
  }
  if constexpr (!kIsHalf<Format> && (!kHasWgmma || Format::kHasOffsets)) {
    uint32_t x[4];
    load_matrices(x, shared_address(tile) + lane % 8 * kRowBytes<Format> + lane / 8 * 16);
    if constexpr (!kHasWgmma) *place = make_uint4(x[0], x[1], x[2], x[3]);
    if constexpr (Format::kHasOffsets) {
      const float4 sums = column_sums(x);  // all rows are alike: lanes 0 to 3 hold everything
      if (lane < 4) reinterpret_cast<float4*>(target + Operands::sums(block, warp))[lane] = sums;
    }
  }
}

template <class Format>
__global__ void __launch_bounds__(kThreads)
    prefill_operands_kernel(const __grid_constant__ LowbitLinear linear, PrefillOperands operands) {
  __shared__ __align__(16) uint8_t rows[kGroupTokens * kRowBytes<Format>];
  let_dependents_start();
  wait_for_predecessors();
  load_rows<Format>(linear, shared_address(rows));
  __syncthreads();
  uint8_t* const target =
      operands.chunks + (static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x) * ChunkOperands<Format>::kBytes;
#pragma unroll
  for (int block = 0; block < Format::kBlocks; ++block) write_block<Format>(rows, block, target);
  if (blockIdx.x > 0 || !linear.input_norm.squares) return;
  const int token_tile = blockIdx.y * kGroupTokenTiles + threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const float2 scales = input_scales(linear, token_tile);
  if (lane < 4) reinterpret_cast<float2*>(operands.scales + token_tile * kTokenTile)[lane] = scales;
}

}  // namespace

template <class Format>
cudaError_t launch_prefill_operands(const LowbitLinear& linear, const PrefillOperands& operands, cudaStream_t stream) {
  const dim3 grid(unit_grid<Format>(linear.shape).num_chunks, (linear.num_rows + kGroupTokens - 1) / kGroupTokens);
  return launch_early(prefill_operands_kernel<Format>, grid, kThreads, 0, stream, linear, operands);
}

template cudaError_t launch_prefill_operands<Int4>(const LowbitLinear&, const PrefillOperands&, cudaStream_t);
template cudaError_t launch_prefill_operands<Int4Asym>(const LowbitLinear&, const PrefillOperands&, cudaStream_t);
template cudaError_t launch_prefill_operands<Half>(const LowbitLinear&, const PrefillOperands&, cudaStream_t);
template cudaError_t launch_prefill_operands<Int8>(const LowbitLinear&, const PrefillOperands&, cudaStream_t);

}  // namespace pilotfish::cuda
