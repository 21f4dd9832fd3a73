// What the number of token tiles decides in a clustered low-bit linear.
#pragma once

#include "common.cuh"
#include "lowbit_format.cuh"

namespace pilotfish::cuda {

/// Token tiles of a pass, and which warps multiply: groups of eight that share the tokens, a warp 32 rows; or, wide,
/// four warpgroups, a warp 16 rows. It changes no sum's order.
template <int kTokenTilesValue, int kGroupsValue, bool kIsWide = false>
struct ClusterShape {
  static constexpr int kTokenTiles = kTokenTilesValue;
  static constexpr bool kSharedOffsets = kTokenTiles > 1;
  static constexpr bool kIsExact = true;
  static constexpr bool kIsSwizzled = kIsWide;
  static constexpr int kMultiplyingWarps = kIsWide ? 16 : kGroupsValue * kMaxGroupPieces;
  static constexpr int kWeightWarp = kMultiplyingWarps;
  static constexpr int kFirstActivationWarp = kWeightWarp + 1;
  static constexpr int kActivationWarps = kTokenTiles <= 4 || kIsWide ? 1 : 2;
  static constexpr int kThreads = (kFirstActivationWarp + kActivationWarps) * kWarpSize;
  /// Two blocks on a multiprocessor: the next linear's read ahead while this one's finish.
  static constexpr int kBlocksPerSm = kTokenTiles == 1 ? 2 : 1;
  /// A scheduler has 16384 registers and every fourth warp: 10 warps with 72 registers leave room for 15 of the next
  /// linear; 18 may have 96.
  static constexpr int kRegisters = kBlocksPerSm == 2 ? 72 : kIsWide ? 96 : 168;

  struct Warp {  // what one warp multiplies
    static constexpr int kTokenTiles = kTokenTilesValue / kGroupsValue;
    static constexpr int kStageTiles = kTokenTilesValue;
    static constexpr bool kSharedOffsets = kTokenTilesValue > 1;
    static constexpr bool kIsExact = true;
  };
};

}  // namespace pilotfish::cuda
