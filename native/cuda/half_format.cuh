// f16 weights, repacked into the units of lowbit_format.cuh: a piece of 32 rows by 64 columns is [2 row tiles][2
// blocks][2 steps][32 lanes][16 bytes], each 16 bytes one lane's operand of mma.m16n8k16. Within a block of 32 columns
// lane 4 g + t has columns 8 t to 8 t + 7, four a step, instead of two every eight: so the 16 bytes that a token has
// there are the lane's other operand as they are.
#pragma once

#include <type_traits>

#include "lowbit_format.cuh"

namespace pilotfish::cuda {

struct Half {
  static constexpr int kChunkColumns = 64;
  static constexpr int kBlocks = kChunkColumns / kBlockColumns;
  static constexpr int kStepBytes = kWarpSize * 16;
  static constexpr int kTileBytes = kBlocks * 2 * kStepBytes;
  static constexpr int kPieceBytes = kTilesPerPiece * kTileBytes;
  static constexpr bool kHasOffsets = false;

  /// Byte of a piece where a weight lies; `column` of the chunk.
  __host__ __device__ static int place(int row, int column) {
    const int in_block = column % kBlockColumns, lane = row % 8 * 4 + in_block / 8;
    const int step = in_block % 8 / 4, word = row % kTileRows / 8 + in_block % 4 / 2 * 2;
    return row / kTileRows * kTileBytes + (column / kBlockColumns * 2 + step) * kStepBytes + lane * 16 + word * 4 +
           column % 2 * 2;
  }
};

template <class Format>
inline constexpr bool kIsHalf = std::is_same_v<Format, Half>;

/// K is cut into so many slices, summed apart and added in order: by this alone, never by the number of rows.
inline constexpr int kHalfSlices = 8;

}  // namespace pilotfish::cuda
