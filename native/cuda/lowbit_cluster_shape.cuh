// What the number of token tiles decides in a clustered low-bit linear; it changes no sum's order.
#pragma once

#include "common.cuh"
#include "lowbit_cluster_grid.cuh"
#include "lowbit_multiply.cuh"

namespace pilotfish::cuda {

template <int kTokenTilesValue>
struct ClusterShape {
  static constexpr int kTokenTiles = kTokenTilesValue;
  static constexpr int kTokens = kTokenTiles * kTokenTile;
  /// Four warps multiply 64 rows: two pieces. A scheduler has 16384 registers and every fourth warp.
  static constexpr int kWarpgroups = kTokenTiles <= 4 ? 5 : 4;
  static constexpr int kBatchPieces = kWarpgroups * 2;
  static constexpr int kMultiplyingWarps = kWarpgroups * 4;
  static constexpr int kThreads = (kMultiplyingWarps + 1) * kWarpSize;  // and one that loads weights
  static constexpr int kRegisters = kTokenTiles <= 4 ? 80 : 96;
  /// Few tokens: a block's slice of the activations lies in shared memory as a whole. Else a unit's are in its stage,
  /// and so many units' are on their way beside the one that is multiplied.
  static constexpr bool kIsResident = kTokenTiles <= 2;
  static constexpr int kUnitsAhead = 3;
  /// Pieces of a batch that one of the eight blocks may own.
  static constexpr int kMostOwned = (kBatchPieces + kClusterBlocks - 1) / kClusterBlocks;
};

/// The activations of a chunk, in panels of 64 columns with a row of 128 bytes a token, whose 16-byte vectors are
/// exchanged as wgmma expects it; and one stage: a unit's activations, unless they are resident, and its weights.
template <class Format, class Shape>
struct ClusterStage {
  static constexpr int kAlignment = 1024;
  static constexpr int kPanelBytes = Shape::kTokens * 128;
  static constexpr int kActivationBytes = Format::kChunkColumns / 64 * kPanelBytes;
  static constexpr int kWeights = Shape::kIsResident ? 0 : kActivationBytes;
  static constexpr int kBytes =
      (kWeights + Shape::kBatchPieces * Format::kPieceBytes + kAlignment - 1) / kAlignment * kAlignment;

  __device__ static int vector_at(int token, int vector) {
    return vector / 8 * kPanelBytes + token * 128 + (vector ^ token) % 8 * 16;
  }
};

}  // namespace pilotfish::cuda
