// What the number of token tiles decides in a clustered low-bit linear.
#pragma once

#include "common.cuh"
#include "lowbit_format.cuh"

namespace pilotfish::cuda {

/// Token tiles of a pass, and how many groups of eight warps share them; it changes no sum's order.
template <int kTokenTilesValue, int kGroupsValue>
struct ClusterShape {
  static constexpr int kTokenTiles = kTokenTilesValue;
  static constexpr int kGroups = kGroupsValue;
  static constexpr bool kSharedOffsets = kTokenTiles > 1;
  static constexpr int kMultiplyingWarps = kGroups * kMaxGroupPieces;
  static constexpr int kWeightWarp = kMultiplyingWarps;
  static constexpr int kFirstActivationWarp = kWeightWarp + 1;
  static constexpr int kActivationWarps = kTokenTiles <= 4 ? 1 : 2;
  static constexpr int kThreads = (kFirstActivationWarp + kActivationWarps) * kWarpSize;
  /// Two blocks on a multiprocessor: the next linear's read ahead while this one's finish.
  static constexpr int kBlocksPerSm = kTokenTiles <= 2 ? 2 : 1;
  static constexpr int kRegisters = kTokenTiles <= 2 ? 96 : kTokenTiles <= 4 ? 168 : 104;

  struct Warp {  // what one warp multiplies
    static constexpr int kTokenTiles = kTokenTilesValue / kGroupsValue;
    static constexpr int kStageTiles = kTokenTilesValue;
    static constexpr bool kSharedOffsets = kTokenTilesValue > 1;
  };
};

}  // namespace pilotfish::cuda
