// The repacked weight: [row groups][chunks of columns][pieces of 32 rows]. A piece holds its chunk in the order that
// the lanes of a warp feed mma.m16n8k16 with: [2 row tiles][2 vectors][32 lanes][16 bytes] of integers, then the scales
// [2 row tiles][8 rows g][row g, row g + 8][blocks] f16.
#pragma once

#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

inline constexpr int kTileRows = 16;      // rows of one mma operand
inline constexpr int kTilesPerPiece = 2;  // SwiGLU's gate and up tile lie in one piece
inline constexpr int kPieceRows = kTileRows * kTilesPerPiece;
inline constexpr int kMaxGroupPieces = 8;    // one a consumer warp
inline constexpr int kPartialsPerBlock = 3;  // lowbit_combine.cuh: Place
inline constexpr int kBlockColumns = 32;     // columns that share a scale
inline constexpr int kStepColumns = 16;      // columns of one mma
inline constexpr int kWordsPerVector = 4;    // integer words of a lane, a row tile and half a chunk
inline constexpr int kIntegerBytes = kTilesPerPiece * 2 * kWordsPerVector * kWarpSize * 4;

/// (word & mask) | bits in one instruction, which the compiler does not find by itself.
__device__ __forceinline__ uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

// Integers become f16 without a conversion: set in the mantissa of a power of two, n reads as that power + n. One exact
// subtraction for two weights leaves the integer itself, so that nothing has to be taken off the sums.

/// Both f16 of `halves` less those of `offsets`.
__device__ __forceinline__ uint32_t subtract_halves(uint32_t halves, uint32_t offsets) {
  uint32_t result;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(result) : "r"(halves), "r"(offsets));
  return result;
}

/// Four bits a weight, stored as n = w + kZero. A word holds one step, a pair of neighbouring columns in either half:
/// bits 2 to 5 are row g, columns 2t and 2t + 1; bits 6 to 9 row g + 8; rotated right by 8, the same places hold
/// columns 2t + 8 and 2t + 9.
template <int kZero>
struct FourBits {
  static constexpr int kChunkColumns = 128;
  static constexpr int kBlocks = kChunkColumns / kBlockColumns;
  static constexpr int kScaleBytes = kPieceRows * kBlocks * 2;
  using ScaleVector = uint4;  // 2 rows by kBlocks

  __device__ static void unpack(uint32_t (&operand)[4], const uint32_t (&words)[kWordsPerVector], int step) {
    constexpr uint32_t kLow = 0x5C005C00, kHigh = 0x4C004C00;  // 256 and 16, twice: a step of 1 is bit 2, or bit 6
    constexpr uint32_t kLowZero = kLow + (kZero << 2) * 0x10001, kHighZero = kHigh + (kZero << 6) * 0x10001;
    const uint32_t word = words[step];
    const uint32_t rotated = __funnelshift_r(word, word, 8);
    operand[0] = subtract_halves(and_or(word, 0x003C003C, kLow), kLowZero);
    operand[1] = subtract_halves(and_or(word, 0x03C003C0, kHigh), kHighZero);
    operand[2] = subtract_halves(and_or(rotated, 0x003C003C, kLow), kLowZero);
    operand[3] = subtract_halves(and_or(rotated, 0x03C003C0, kHigh), kHighZero);
  }
};

struct Int4 : FourBits<8> {
  static constexpr int kPieceBytes = kIntegerBytes + kScaleBytes;
  static constexpr bool kHasOffsets = false;
};

/// Four bits a weight, w = scale * n + offset: an offset for each scale follows the scales in the same order.
struct Int4Asym : FourBits<0> {
  static constexpr int kPieceBytes = kIntegerBytes + 2 * kScaleBytes;
  static constexpr bool kHasOffsets = true;
};

/// Eight bits a weight, stored as n = w + 128. Two words hold one step: bytes 0, 1 are row g, columns 2t and 2t + 1;
/// bytes 2, 3 row g + 8; the second word has columns 2t + 8 and 2t + 9.
struct Int8 {
  static constexpr int kChunkColumns = 64;
  static constexpr int kBlocks = kChunkColumns / kBlockColumns;
  static constexpr int kScaleBytes = kPieceRows * kBlocks * 2;
  static constexpr int kPieceBytes = kIntegerBytes + kScaleBytes;
  static constexpr bool kHasOffsets = false;
  using ScaleVector = uint2;

  __device__ static void unpack(uint32_t (&operand)[4], const uint32_t (&words)[kWordsPerVector], int step) {
    constexpr uint32_t kExponents = 0x64646464, kZero = 0x64806480;  // 1024 + 128, twice
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      operand[2 * half] = subtract_halves(__byte_perm(words[2 * step + half], kExponents, 0x4140), kZero);
      operand[2 * half + 1] = subtract_halves(__byte_perm(words[2 * step + half], kExponents, 0x4342), kZero);
    }
  }
};

/// The weight as a row of units, each one row group by one chunk: what thread blocks divide among themselves.
struct UnitGrid {
  int num_pieces;  // of 32 rows
  int num_groups;
  int pieces_per_group;  // the last group may have fewer
  int num_chunks;

  __host__ __device__ int num_units() const { return num_groups * num_chunks; }
  __host__ __device__ int group_of(int piece) const { return piece / pieces_per_group; }
  __host__ __device__ int pieces_of_group(int group) const {
    const int left = num_pieces - group * pieces_per_group;
    return left < pieces_per_group ? left : pieces_per_group;
  }
  /// Pieces that lie before this unit; units follow each other without a gap.
  __host__ __device__ size_t first_piece(int group, int chunk) const {
    return static_cast<size_t>(group) * pieces_per_group * num_chunks +
           static_cast<size_t>(chunk) * pieces_of_group(group);
  }
};

template <class Format>
UnitGrid unit_grid(const LowbitShape& shape) {
  UnitGrid grid;
  grid.num_pieces = (shape.out_features + kPieceRows - 1) / kPieceRows;
  grid.num_groups = (grid.num_pieces + kMaxGroupPieces - 1) / kMaxGroupPieces;
  grid.pieces_per_group = (grid.num_pieces + grid.num_groups - 1) / grid.num_groups;
  grid.num_chunks = (shape.in_features + Format::kChunkColumns - 1) / Format::kChunkColumns;
  return grid;
}

inline UnitGrid unit_grid(const LowbitShape& shape) {
  const bool has_four_bits = shape.format == WeightFormat::kInt4 || shape.format == WeightFormat::kInt4Asym;
  return has_four_bits ? unit_grid<Int4>(shape) : unit_grid<Int8>(shape);  // f16 has the units of int8
}

inline size_t piece_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt4:
      return Int4::kPieceBytes;
    case WeightFormat::kInt4Asym:
      return Int4Asym::kPieceBytes;
    case WeightFormat::kF16:
      return kPieceRows * Int8::kChunkColumns * sizeof(__half);
    case WeightFormat::kInt8:
      break;
  }
  return Int8::kPieceBytes;
}

static_assert(Int4::kPieceBytes % 16 == 0 && Int4Asym::kPieceBytes % 16 == 0 && Int8::kPieceBytes % 16 == 0,
              "bulk copies move 16-byte multiples");

}  // namespace pilotfish::cuda
