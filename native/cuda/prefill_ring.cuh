// How a prompt's linear is divided among thread blocks, where it cuts K, and a block's ring of stages.
#pragma once

#include "common.cuh"
#include "half_format.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "lowbit_resident.cuh"
#include "prefill_multiply.cuh"
#include "prefill_operands.cuh"

namespace pilotfish::cuda {

inline constexpr int kMostPrefillStages = 8;
inline constexpr int kPrefillBarrierBytes = 1024;  // of which 128 are used: stages begin where wgmma wants them
static_assert(2 * kMostPrefillStages * 8 <= kPrefillBarrierBytes);

/// Runs of units (lowbit_format.cuh), or of a row group's chunks, that are summed apart.
struct PrefillCuts {
  int num_units;
  int num_parts;
  int units_per_group;  // 0: every group is cut alike

  __device__ int last_chunk_of_part(int group, int chunk) const {
    const int unit = group * units_per_group + chunk;
    const int part = (static_cast<uint32_t>(unit + 1) * num_parts - 1) / num_units;
    return static_cast<int>(static_cast<uint32_t>(part + 1) * num_units / num_parts) - 1 - group * units_per_group;
  }
  template <class Format>
  static PrefillCuts of(const LowbitPlan& plan, const UnitGrid& grid) {
    if (kIsHalf<Format>) return {grid.num_chunks, kHalfSlices, 0};
    if (plan.is_resident) return {grid.num_chunks, resident_slices(grid.num_chunks), 0};
    return {grid.num_units(), plan.num_blocks, grid.num_chunks};
  }
};

struct PrefillParams {
  LowbitLinear linear;
  UnitGrid grid;
  PrefillCuts cuts;
  PrefillOperands operands;
  int num_stages;
};

inline constexpr int kTilePieces =
    kMaxGroupPieces / 2;                  // weight rows of a block: half a row group, so that two blocks share
inline constexpr int kTilesPerGroup = 2;  // a multiprocessor and one writes while the other multiplies
inline constexpr int kPrefillWarps = kTilePieces * kPieceShares;
inline constexpr int kPrefillThreads = kPrefillWarps * kWarpSize;

struct PrefillTile {
  int group;
  int first_piece;  // of the group
  int num_pieces;

  __device__ static PrefillTile of(const UnitGrid& grid) {
    const int group = blockIdx.y / kTilesPerGroup, first_piece = blockIdx.y % kTilesPerGroup * kTilePieces;
    return {group, first_piece, min(kTilePieces, grid.pieces_of_group(group) - first_piece)};
  }
};

/// Activations and weights of one chunk.
template <class Format>
struct PrefillStage {
  static constexpr int kWeights = ChunkOperands<Format>::kBytes;
  static constexpr int kAlignment = 1024;  // of activations for wgmma
  static constexpr int kBytes =
      (kWeights + kTilePieces * Format::kPieceBytes + kAlignment - 1) / kAlignment * kAlignment;
};

/// The ring of stages, filled a few chunks ahead of their use by one thread's bulk copies, or by all threads' copies.
template <class Format>
class PrefillRing {
 public:
  __device__ PrefillRing(const PrefillParams& params, const PrefillTile& tile, uint8_t* shared)
      : params_(params),
        stages_(shared + kPrefillBarrierBytes),
        barriers_(shared_address(shared)),
        weights_(static_cast<const uint8_t*>(params.linear.weights) +
                 (params.grid.first_piece(tile.group, 0) + tile.first_piece) * Format::kPieceBytes),
        weight_stride_(params.grid.pieces_of_group(tile.group) * Format::kPieceBytes),
        weight_bytes_(tile.num_pieces * Format::kPieceBytes),
        operands_(params.operands.chunks +
                  static_cast<size_t>(blockIdx.x) * params.grid.num_chunks * ChunkOperands<Format>::kBytes) {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < params.num_stages; ++stage) {
        barrier_init(landed(stage), kArrivals);
        barrier_init(emptied(stage), kPrefillWarps);
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
    return stages_ + stage * PrefillStage<Format>::kBytes;
  }
  __device__ void leave(int chunk) const {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) barrier_arrive(emptied(chunk % params_.num_stages));
  }

 private:
#if __CUDA_ARCH__ >= 900
  static constexpr int kArrivals = 2;  // weights, activations

  __device__ void copy_weights(int chunk, int stage) const {
    copy_bulk(shared_address(stages_) + stage * PrefillStage<Format>::kBytes + PrefillStage<Format>::kWeights,
              weights_ + static_cast<size_t>(chunk) * weight_stride_, weight_bytes_, landed(stage),
              cache_policy(Passes::kIntoCache));
  }
  __device__ void copy_operands(int chunk, int stage) const {
    constexpr int kBytes = ChunkOperands<Format>::kBytes;
    copy_bulk(shared_address(stages_) + stage * PrefillStage<Format>::kBytes,
              operands_ + static_cast<size_t>(chunk) * kBytes, kBytes, landed(stage), cache_policy(Passes::kIntoCache));
  }
#else
  static constexpr int kArrivals = kPrefillThreads;

  __device__ void copy_both(int chunk, int stage) const {
    constexpr int kBytes = ChunkOperands<Format>::kBytes;
    const uint32_t target = shared_address(stages_) + stage * PrefillStage<Format>::kBytes;
    const uint8_t* source = weights_ + static_cast<size_t>(chunk) * weight_stride_;
    for (int at = threadIdx.x * 16; at < weight_bytes_; at += kPrefillThreads * 16)
      copy_16(target + PrefillStage<Format>::kWeights + at, source + at, 16);
    source = operands_ + static_cast<size_t>(chunk) * kBytes;
    for (int at = threadIdx.x * 16; at < kBytes; at += kPrefillThreads * 16) {
      copy_16(target + at, source + at, 16);
    }
    barrier_arrive_after_copies(landed(stage));
  }
#endif

  __device__ uint32_t landed(int stage) const { return barriers_ + stage * 8; }
  __device__ uint32_t emptied(int stage) const { return barriers_ + (kMostPrefillStages + stage) * 8; }

  const PrefillParams& params_;
  uint8_t* stages_;
  uint32_t barriers_;
  const uint8_t* weights_;
  int weight_stride_;  // bytes from chunk to chunk,
  int weight_bytes_;   // of them this block's
  const uint8_t* operands_;
};

}  // namespace pilotfish::cuda
