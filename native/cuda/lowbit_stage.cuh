// What the warps of a low-bit linear's block share: the division of work, the ring of stages and the warps that
// fill it.
#pragma once

#include "activation_map.cuh"
#include "common.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "wgmma.cuh"

namespace pilotfish::cuda {

inline constexpr int kPieceWarps = kMaxGroupPieces;  // a piece of 32 weight rows each
inline constexpr int kMaxStages = 16;

/// What the number of token tiles decides; it changes no sum's order. kRowTiles: of a piece, a warp; two warps may
/// share a piece, so that one unpacks or adds while the other's products are on their way.
template <int kTokenTilesValue, int kRowTilesValue>
struct Shape {
  static constexpr int kTokenTiles = kTokenTilesValue, kRowTiles = kRowTilesValue;
  static constexpr int kTokens = kTokenTiles * kTokenTile;
  static constexpr int kPieceShares = kTilesPerPiece / kRowTiles;
  static constexpr int kMultiplyingWarps = kPieceWarps * kPieceShares;
  static constexpr int kWeightWarp = kMultiplyingWarps, kFirstActivationWarp = kMultiplyingWarps + 1;
  /// Without tensor maps one warp that copies activations is the limit from 16 rows on; with them it is one thread.
  static constexpr int kActivationWarps = kTokenTiles == 1 ? 1 : 3;
  static constexpr int kThreads = (kMultiplyingWarps + 1 + kActivationWarps) * kWarpSize;
  /// A scheduler has 16384 registers and every fourth warp: 12 warps may have 168, 20 warps 96. Of these, warpgroups
  /// that load leave some to those that multiply.
  static constexpr int kRegisters = kTokenTiles == 1 || kPieceShares > 1 ? 96 : 168;
  static constexpr bool kMovesRegisters = kHasWgmma && kPieceShares > 1;
  static constexpr int kLoadingRegisters = 64, kMultiplyingRegisters = 104;
  /// Two blocks on a multiprocessor: the next linear's read ahead while this one's finish.
  static constexpr int kBlocksPerSm = kTokenTiles == 1 ? 2 : 1;
};

/// One stage: the weights of a unit and its activations.
template <class Format, class Shape>
struct Stage {
  static constexpr int kActivations = kMaxGroupPieces * Format::kPieceBytes;
  static constexpr int kBytes = kActivations + activation_bytes<Format>(Shape::kTokens);
  static constexpr int kAlignment = 1024;  // of the copies of a tensor map
  static_assert(kActivations % kAlignment == 0 && kBytes % kAlignment == 0);
};

struct Params {
  CUtensorMap activations;  // for compute capability 9.0 and later
  LowbitLinear linear;
  UnitGrid grid;
  int num_stages;  // ring length

  // 32 bits hold units times blocks: 10^5 by 10^2 for the largest vocabularies; a 64-bit division takes half a
  // microsecond.
  __device__ int first_unit(int block) const {
    return static_cast<uint32_t>(block) * grid.num_units() / linear.plan.num_blocks;
  }
  __device__ int block_of_unit(int unit) const {
    return (static_cast<uint32_t>(unit + 1) * linear.plan.num_blocks - 1) / grid.num_units();
  }
};

/// Shared-memory addresses of the ring; barriers are 8 bytes, one a stage. Behind them, what scales the
/// sums of a warp's tokens: combine().
struct Ring {
  static constexpr int kScales = 3 * kMaxStages * 8;
  static constexpr int kStages = 1024;
  static_assert(kScales + kTilesPerPiece * kPieceWarps * kTokenTile * static_cast<int>(sizeof(float)) <= kStages);
  uint32_t barriers;
  uint32_t stages;

  __device__ uint32_t weights_landed(int stage) const { return barriers + stage * 8; }
  __device__ uint32_t activations_landed(int stage) const { return barriers + (kMaxStages + stage) * 8; }
  __device__ uint32_t emptied(int stage) const { return barriers + (2 * kMaxStages + stage) * 8; }

  __device__ void init(int num_stages, int num_multiplying_warps, [[maybe_unused]] int num_activation_warps) const {
#if __CUDA_ARCH__ >= 900
    const int weight_arrivals = 1, activation_arrivals = 1;
#else
    const int weight_arrivals = kWarpSize, activation_arrivals = num_activation_warps * kWarpSize;
#endif
    for (int stage = 0; stage < num_stages; ++stage) {
      barrier_init(weights_landed(stage), weight_arrivals);
      barrier_init(activations_landed(stage), activation_arrivals);
      barrier_init(emptied(stage), num_multiplying_warps);
    }
    barrier_init_fence();
  }
};

/// Position in the ring; the parity says how often it has gone round.
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance(int num_stages) {
    if (++stage < num_stages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// Streams the weights of a block's run of units. They never change, so this starts before the predecessors have ended;
/// but only so many units are in flight at a time: more would not come sooner, and what other blocks must read first
/// (sums, activations) would queue behind them.
template <class Format, class Shape>
__device__ void load_weights(const Params& params, const Ring& ring, int num_units) {
  constexpr int kUnitsInFlight = 2;
  const int in_flight = min(kUnitsInFlight, params.num_stages);
  const int lane = threadIdx.x % kWarpSize;
  const int begin = params.first_unit(blockIdx.x);
  int group = begin / params.grid.num_chunks, chunk = begin % params.grid.num_chunks;
  const auto* source =
      static_cast<const uint8_t*>(params.linear.weights) + params.grid.first_piece(group, chunk) * Format::kPieceBytes;
  [[maybe_unused]] const uint64_t policy = cache_policy(params.linear.passes);
  RingPosition position, landing, emptying;
  for (int unit = 0; unit < num_units; ++unit) {
    if (unit >= params.num_stages) {
      barrier_wait(ring.emptied(emptying.stage), emptying.parity);
      emptying.advance(params.num_stages);
    }
    if (unit >= in_flight) {
      barrier_wait(ring.weights_landed(landing.stage), landing.parity);
      landing.advance(params.num_stages);
    }
    const uint32_t target = ring.stages + position.stage * Stage<Format, Shape>::kBytes;
    const int num_bytes = params.grid.pieces_of_group(group) * Format::kPieceBytes;
#if __CUDA_ARCH__ >= 900
    if (lane == 0) copy_bulk(target, source, num_bytes, ring.weights_landed(position.stage), policy);
#else
    for (int offset = lane * 16; offset < num_bytes; offset += kWarpSize * 16)
      copy_16(target + offset, source + offset, 16);
    barrier_arrive_after_copies(ring.weights_landed(position.stage));
#endif
    source += num_bytes;  // units follow each other
    position.advance(params.num_stages);
    if (++chunk == params.grid.num_chunks) {
      chunk = 0;
      ++group;
    }
  }
}

#if __CUDA_ARCH__ >= 900
/// Fills a stage with the activations of a chunk, by one thread.
template <class Format, class Shape>
__device__ __forceinline__ void fill_activations(const Params& params, uint32_t target, uint32_t landed, int chunk) {
  copy_activations<Format, Shape::kTokens>(target, params.activations, chunk * Format::kChunkColumns, landed);
}
#else
/// Fills a stage with the activations of a chunk, by a few warps. Columns past K are filled with zeros. Token rows past
/// num_rows stay as they are: they only meet sums that nobody writes.
template <class Format, class Shape>
__device__ __forceinline__ void fill_activations(const Params& params, uint32_t target, uint32_t landed, int chunk) {
  constexpr int kRowVectors = Format::kChunkColumns / 8, kThreads = Shape::kActivationWarps * kWarpSize;
  const int thread = threadIdx.x - Shape::kFirstActivationWarp * kWarpSize, vector = thread % kRowVectors;
  const int k = params.linear.shape.in_features;
  const int column = chunk * Format::kChunkColumns + vector * 8, valid_bytes = column < k ? 16 : 0;
  const auto* const source = static_cast<const __half*>(params.linear.x) + (valid_bytes ? column : 0);
#pragma unroll 4
  for (int row = thread / kRowVectors; row < params.linear.num_rows; row += kThreads / kRowVectors) {
    copy_16(target + activation_place(row, vector, Shape::kTokens), source + static_cast<size_t>(row) * k, valid_bytes);
  }
  barrier_arrive_after_copies(landed);
}
#endif

/// Copies activations into stages.
template <class Format, class Shape>
__device__ void load_activations(const Params& params, const Ring& ring, int num_units) {
  using ThisStage = Stage<Format, Shape>;
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x != Shape::kFirstActivationWarp * kWarpSize) return;
#endif
  int chunk = params.first_unit(blockIdx.x) % params.grid.num_chunks;
  RingPosition filling, emptying;
  for (int unit = 0; unit < num_units; ++unit) {
    if (unit >= params.num_stages) {
      barrier_wait(ring.emptied(emptying.stage), emptying.parity);
      emptying.advance(params.num_stages);
    }
    const uint32_t target = ring.stages + filling.stage * ThisStage::kBytes + ThisStage::kActivations;
    fill_activations<Format, Shape>(params, target, ring.activations_landed(filling.stage), chunk);
    filling.advance(params.num_stages);
    if (++chunk == params.grid.num_chunks) chunk = 0;
  }
}

}  // namespace pilotfish::cuda
