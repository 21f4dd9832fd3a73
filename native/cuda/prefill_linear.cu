// Low-bit linear of many rows: a thread block has a group of up to 256 weight rows and 64 tokens, and walks K with a
// ring of stages. It cuts K where the kernels for few rows cut it and adds the parts in their order: a row has the same
// bits in a prompt and in a pass of its own.
#include <algorithm>

#include "common.cuh"
#include "kernels.h"
#include "lowbit_combine.cuh"
#include "lowbit_resident.cuh"
#include "prefill_multiply.cuh"
#include "prefill_operands.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kMostStages = 8;
constexpr int kBarrierBytes = 128;
#ifndef ROWWARPS
#define ROWWARPS 4
#endif
constexpr int kRowWarps = ROWWARPS;
static_assert(2 * kMostStages * 8 <= kBarrierBytes);

/// Runs of units (lowbit_format.cuh), or of a row group's chunks, that are summed apart.
struct Cuts {
  int num_units;
  int num_parts;
  int units_per_group;  // 0: every group is cut alike

  __device__ int last_chunk_of_part(int group, int chunk) const {
    const int unit = group * units_per_group + chunk;
    const int part = (static_cast<uint32_t>(unit + 1) * num_parts - 1) / num_units;
    return static_cast<int>(static_cast<uint32_t>(part + 1) * num_units / num_parts) - 1 - group * units_per_group;
  }
  template <class Format>
  static Cuts of(const LowbitPlan& plan, const UnitGrid& grid) {
    if (kIsHalf<Format>) return {grid.num_chunks, kHalfSlices, 0};
    if (plan.num_slices > 0) return {grid.num_chunks, plan.num_slices, 0};
    if (plan.is_resident) return {grid.num_chunks, resident_slices(grid.num_chunks), 0};
    return {grid.num_units(), plan.num_blocks, grid.num_chunks};
  }
};

struct Params {
  LowbitLinear linear;
  UnitGrid grid;
  Cuts cuts;
  PrefillOperands operands;
  int num_stages;
};

/// Weight rows of a block: a row group, or half of one where groups are too few for the device.
template <int kRowWarpsValue>
struct Tile {
  static constexpr int kRowWarps = kRowWarpsValue;
  static constexpr int kWarps = kRowWarps * kTokenWarps;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kPieces = kRowWarps * kWarpPieces;
  static constexpr int kTilesPerGroup = kMaxGroupPieces / kPieces;
  static constexpr int kBlocksPerSm = kTilesPerGroup;

  __device__ static int group() { return blockIdx.y / kTilesPerGroup; }
  __device__ static int first_piece() { return blockIdx.y % kTilesPerGroup * kPieces; }
};

/// Weights and activations of one chunk.
template <class Format, class Tile>
struct PrefillStage {
  static constexpr int kOperands = Tile::kPieces * Format::kPieceBytes;
  static constexpr int kBytes = kOperands + ChunkOperands<Format>::kBytes;
};

/// The ring of stages, filled a few chunks ahead of their use by one thread's bulk copies, or by all threads' copies.
template <class Format, class Tile>
class PrefillRing {
 public:
  __device__ PrefillRing(const Params& params, uint8_t* shared)
      : params_(params),
        stages_(shared + kBarrierBytes),
        barriers_(shared_address(shared)),
        weights_(static_cast<const uint8_t*>(params.linear.weights) +
                 (params.grid.first_piece(Tile::group(), 0) + Tile::first_piece()) * Format::kPieceBytes),
        weight_stride_(params.grid.pieces_of_group(Tile::group()) * Format::kPieceBytes),
        weight_bytes_(min(Tile::kPieces, params.grid.pieces_of_group(Tile::group()) - Tile::first_piece()) *
                      Format::kPieceBytes),
        operands_(params.operands.chunks +
                  static_cast<size_t>(blockIdx.x) * params.grid.num_chunks * ChunkOperands<Format>::kBytes) {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < params.num_stages; ++stage) {
        barrier_init(landed(stage), kArrivals);
        barrier_init(emptied(stage), Tile::kWarps);
      }
      barrier_init_fence();
    }
    __syncthreads();
  }

  /// The weights never change: they are on their way before the predecessors have ended.
  __device__ void start() const {
    const int count = min(params_.num_stages, params_.grid.num_chunks);
#if __CUDA_ARCH__ >= 900
    for (int chunk = 0; threadIdx.x == 0 && chunk < count; ++chunk) copy_weights(chunk, chunk);
    wait_for_predecessors();
    for (int chunk = 0; threadIdx.x == 0 && chunk < count; ++chunk) copy_operands(chunk, chunk);
#else
    for (int chunk = 0; chunk < count; ++chunk) copy_both(chunk, chunk);
#endif
  }

  /// Called before chunk `next` is waited for: refills the stage of a chunk that all warps have left behind.
  __device__ void refill(int next) const {
    const int num_stages = params_.num_stages, left = next - (num_stages > 2 ? 2 : 1), chunk = left + num_stages;
    if (left < 0 || chunk >= params_.grid.num_chunks) return;
    const int stage = left % num_stages;
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      barrier_wait(emptied(stage), left / num_stages % 2);
      copy_weights(chunk, stage);
      copy_operands(chunk, stage);
    }
    __syncwarp();
#else
    barrier_wait(emptied(stage), left / num_stages % 2);
    copy_both(chunk, stage);
#endif
  }

  __device__ const uint8_t* wait(int chunk) const {
    const int stage = chunk % params_.num_stages;
    barrier_wait(landed(stage), chunk / params_.num_stages % 2);
    return stages_ + stage * PrefillStage<Format, Tile>::kBytes;
  }
  __device__ void leave(int chunk) const {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) barrier_arrive(emptied(chunk % params_.num_stages));
  }

 private:
#if __CUDA_ARCH__ >= 900
  static constexpr int kArrivals = 2;  // weights, activations

  __device__ void copy_weights(int chunk, int stage) const {
    copy_bulk(shared_address(stages_) + stage * PrefillStage<Format, Tile>::kBytes,
              weights_ + static_cast<size_t>(chunk) * weight_stride_, weight_bytes_, landed(stage),
              cache_policy(Passes::kIntoCache));
  }
  __device__ void copy_operands(int chunk, int stage) const {
    constexpr int kBytes = ChunkOperands<Format>::kBytes;
    copy_bulk(
        shared_address(stages_) + stage * PrefillStage<Format, Tile>::kBytes + PrefillStage<Format, Tile>::kOperands,
        operands_ + static_cast<size_t>(chunk) * kBytes, kBytes, landed(stage), cache_policy(Passes::kIntoCache));
  }
#else
  static constexpr int kArrivals = Tile::kThreads;

  __device__ void copy_both(int chunk, int stage) const {
    constexpr int kBytes = ChunkOperands<Format>::kBytes;
    const uint32_t target = shared_address(stages_) + stage * PrefillStage<Format, Tile>::kBytes;
    const uint8_t* source = weights_ + static_cast<size_t>(chunk) * weight_stride_;
    for (int at = threadIdx.x * 16; at < weight_bytes_; at += Tile::kThreads * 16)
      copy_16(target + at, source + at, 16);
    source = operands_ + static_cast<size_t>(chunk) * kBytes;
    for (int at = threadIdx.x * 16; at < kBytes; at += Tile::kThreads * 16) {
      copy_16(target + PrefillStage<Format, Tile>::kOperands + at, source + at, 16);
    }
    barrier_arrive_after_copies(landed(stage));
  }
#endif

  __device__ uint32_t landed(int stage) const { return barriers_ + stage * 8; }
  __device__ uint32_t emptied(int stage) const { return barriers_ + (kMostStages + stage) * 8; }

  const Params& params_;
  uint8_t* stages_;
  uint32_t barriers_;
  const uint8_t* weights_;
  int weight_stride_;  // bytes from chunk to chunk,
  int weight_bytes_;   // of them this block's
  const uint8_t* operands_;
};

/// Adds a part's sums to those of the parts before it and starts the next.
__device__ __forceinline__ void end_part(PrefillSums& totals, PrefillSums& sums) {
#pragma unroll
  for (int i = 0; i < kWarpRowTiles * kWarpTokenTiles; ++i) {
    float4& sum = sums[i / kWarpTokenTiles][i % kWarpTokenTiles];
    add(totals[i / kWarpTokenTiles][i % kWarpTokenTiles], sum);
    sum = {};
  }
}

__device__ __forceinline__ void write_results(const Params& params, int group, int first_piece, int first_tile,
                                              const PrefillSums& totals) {
  const int pieces = params.grid.pieces_of_group(group);
#pragma unroll
  for (int tokens = 0; tokens < kWarpTokenTiles; ++tokens) {
    const int token_tile = blockIdx.x * kGroupTokenTiles + first_tile + tokens;
    if (token_tile * kTokenTile >= params.linear.num_rows) return;
    float2 scales = {1.0f, 1.0f};
    if (params.linear.input_norm.squares) {
      scales =
          __ldcg(reinterpret_cast<const float2*>(params.operands.scales + token_tile * kTokenTile) + threadIdx.x % 4);
    }
#pragma unroll
    for (int i = 0; i < kWarpPieces; ++i) {
      if (first_piece + i >= pieces) continue;
      const float4 sums[kTilesPerPiece] = {totals[i * kTilesPerPiece][tokens], totals[i * kTilesPerPiece + 1][tokens]};
      write_tile(params.linear, group * params.grid.pieces_per_group + first_piece + i, token_tile, scales, sums);
    }
  }
}

template <class Format, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    prefill_linear_kernel(const __grid_constant__ Params params) {
  extern __shared__ __align__(128) uint8_t shared[];
  let_dependents_start();
  const int group = Tile::group();
  if (Tile::first_piece() >= params.grid.pieces_of_group(group)) return;
  const PrefillRing<Format, Tile> ring(params, shared);
  ring.start();
  const int warp = threadIdx.x / kWarpSize;
  const int first_piece = warp % Tile::kRowWarps * kWarpPieces;  // of the tile
  const int first_tile = warp / Tile::kRowWarps * kWarpTokenTiles;
  PrefillSums totals = {}, sums = {};
  int part_end = params.cuts.last_chunk_of_part(group, 0);
#pragma unroll 1
  for (int chunk = 0; chunk < params.grid.num_chunks; ++chunk) {
    ring.refill(chunk);
    const uint8_t* stage = ring.wait(chunk);
    multiply_prefill_chunk<Format>(stage + first_piece * Format::kPieceBytes,
                                   stage + PrefillStage<Format, Tile>::kOperands, first_tile, sums);
    ring.leave(chunk);
    if (chunk != part_end && chunk != params.grid.num_chunks - 1) continue;
    end_part(totals, sums);
    part_end = params.cuts.last_chunk_of_part(group, chunk + 1);
  }
  write_results(params, group, Tile::first_piece() + first_piece, first_tile, totals);
}

template <class Format, class Tile>
cudaError_t launch(const LowbitLinear& linear, void* scratch, const DeviceLimits& limits, cudaStream_t stream) {
  Params params;
  params.linear = linear;
  params.grid = unit_grid<Format>(linear.shape);
  params.cuts = Cuts::of<Format>(linear.plan, params.grid);
  params.operands = PrefillOperands::in<Format>(scratch, linear.num_rows, params.grid.num_chunks);
  constexpr size_t kReservedBytes = 1024;  // by the driver, a block
  const size_t most_bytes =
      std::min(limits.shared_bytes_per_block, limits.shared_bytes_per_sm / Tile::kBlocksPerSm - kReservedBytes);
  const int stages = static_cast<int>((most_bytes - kBarrierBytes) / PrefillStage<Format, Tile>::kBytes);
  params.num_stages = std::min(stages, kMostStages);
  if (params.num_stages < 2) return cudaErrorInvalidConfiguration;
  const size_t bytes = kBarrierBytes + static_cast<size_t>(params.num_stages) * PrefillStage<Format, Tile>::kBytes;
  const cudaError_t status = launch_prefill_operands<Format>(linear, params.operands, stream);
  if (status != cudaSuccess) return status;
  const dim3 grid((linear.num_rows + kGroupTokens - 1) / kGroupTokens, params.grid.num_groups * Tile::kTilesPerGroup);
  return launch_early(prefill_linear_kernel<Format, Tile>, grid, Tile::kThreads, bytes, stream, params);
}

template <class Format>
cudaError_t launch(const LowbitLinear& linear, void* scratch, const DeviceLimits& limits, cudaStream_t stream) {
  return launch<Format, Tile<kRowWarps>>(linear, scratch, limits, stream);
}

}  // namespace

bool prefers_prefill(const LowbitShape&, int num_rows, const DeviceLimits&) { return num_rows > kMaxLinearRows; }

size_t prefill_scratch_bytes(const LowbitShape& shape, int num_rows) {
  const size_t groups = (num_rows + kGroupTokens - 1) / kGroupTokens;
  const size_t chunk_bytes = shape.format == WeightFormat::kF16    ? ChunkOperands<Half>::kBytes
                             : shape.format == WeightFormat::kInt8 ? ChunkOperands<Int8>::kBytes
                                                                   : ChunkOperands<Int4>::kBytes;
  return groups * (unit_grid(shape).num_chunks * chunk_bytes + kGroupTokens * sizeof(float));
}

cudaError_t launch_prefill_linear(const LowbitLinear& linear, void* scratch, const DeviceLimits& limits,
                                  cudaStream_t stream) {
  const LowbitShape& shape = linear.shape;
  const bool gate_fits = linear.activation == Activation::kNone || shape.out_features % kPieceRows == 0;
  const bool next_fits = !linear.next.halves || linear.output_type == OutputType::kF32;
  if (shape.in_features <= 0 || shape.in_features % 8 != 0 || shape.out_features <= 0 || linear.num_rows < 1 ||
      linear.num_rows > kMaxPrefillRows || !gate_fits || !next_fits || !scratch) {
    return cudaErrorInvalidValue;
  }
  switch (shape.format) {
    case WeightFormat::kInt4:
      return launch<Int4>(linear, scratch, limits, stream);
    case WeightFormat::kInt4Asym:
      return launch<Int4Asym>(linear, scratch, limits, stream);
    case WeightFormat::kF16:
      return launch<Half>(linear, scratch, limits, stream);
    case WeightFormat::kInt8:
      break;
  }
  return launch<Int8>(linear, scratch, limits, stream);
}

}  // namespace pilotfish::cuda
