// The repacked weight: pieces of 32 rows by one chunk of columns, in the order that the lanes of a warp feed
// mma.m16n8k16 with. A piece is [2 row tiles][2 vectors][32 lanes][16 bytes] of integers, then the scales
// [2 row tiles][8 rows g][row g, row g + 8][blocks] f16.
#pragma once

#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

inline constexpr int kTileRows = 16;       // rows of one mma operand
inline constexpr int kTilesPerPiece = 2;   // SwiGLU's gate and up tile lie in one piece
inline constexpr int kPieceRows = kTileRows * kTilesPerPiece;
inline constexpr int kBlockColumns = 32;   // columns that share a scale
inline constexpr int kStepColumns = 16;    // columns of one mma
inline constexpr int kWordsPerVector = 4;  // integer words of a lane, a row tile and half a chunk
inline constexpr int kIntegerBytes = kTilesPerPiece * 2 * kWordsPerVector * kWarpSize * 4;

__device__ __forceinline__ uint32_t as_word(__half2 value) { return *reinterpret_cast<uint32_t*>(&value); }
__device__ __forceinline__ __half2 as_half2(uint32_t word) { return *reinterpret_cast<__half2*>(&word); }

/// Four bits a weight, stored as w + 8. A word holds one step: nibbles 0 and 4 are row g, columns 2t and 2t + 1;
/// 1 and 5 row g + 8; 2, 6 and 3, 7 the same rows, columns 2t + 8 and 2t + 9.
struct Int4 {
  static constexpr int kChunkColumns = 128;
  static constexpr int kBlocks = kChunkColumns / kBlockColumns;
  static constexpr int kPieceBytes = kIntegerBytes + kPieceRows * kBlocks * 2;
  using ScaleVector = uint4;  // 2 rows by kBlocks

  /// An f16 whose bits are 0x6400 | n is 1024 + n: the integers become f16 without a conversion instruction.
  __device__ static void unpack(uint32_t (&operand)[4], const uint32_t (&words)[kWordsPerVector], int step,
                                __half2 scale_low, __half2 scale_high) {
    const uint32_t word = words[step];
    const uint32_t magic = 0x64006400;
    const __half2 low_offset = __half2half2(__ushort_as_half(0xE408));   // -(1024 + 8)
    const __half2 high_offset = __half2half2(__ushort_as_half(0xD480));  // -(1024 / 16 + 8)
    const __half2 sixteenth = __half2half2(__ushort_as_half(0x2C00));
    const __half2 n0 = as_half2((word & 0x000f000f) | magic);
    const __half2 n1 = as_half2((word & 0x00f000f0) | magic);
    const __half2 n2 = as_half2(((word >> 8) & 0x000f000f) | magic);
    const __half2 n3 = as_half2(((word >> 8) & 0x00f000f0) | magic);
    operand[0] = as_word(__hmul2_rn(__hadd2_rn(n0, low_offset), scale_low));
    operand[1] = as_word(__hmul2_rn(__hfma2(n1, sixteenth, high_offset), scale_high));
    operand[2] = as_word(__hmul2_rn(__hadd2_rn(n2, low_offset), scale_low));
    operand[3] = as_word(__hmul2_rn(__hfma2(n3, sixteenth, high_offset), scale_high));
  }
};

/// Eight bits a weight, stored as w + 128. Two words hold one step: bytes 0, 1 are row g, columns 2t and 2t + 1; bytes
/// 2, 3 row g + 8; the second word has columns 2t + 8 and 2t + 9.
struct Int8 {
  static constexpr int kChunkColumns = 64;
  static constexpr int kBlocks = kChunkColumns / kBlockColumns;
  static constexpr int kPieceBytes = kIntegerBytes + kPieceRows * kBlocks * 2;
  using ScaleVector = uint2;

  __device__ static void unpack(uint32_t (&operand)[4], const uint32_t (&words)[kWordsPerVector], int step,
                                __half2 scale_low, __half2 scale_high) {
    const uint32_t magic = 0x64646464;
    const __half2 offset = __half2half2(__ushort_as_half(0xE480));  // -(1024 + 128)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t word = words[2 * step + half];
      const __half2 low = as_half2(__byte_perm(word, magic, 0x4140));
      const __half2 high = as_half2(__byte_perm(word, magic, 0x4342));
      operand[2 * half] = as_word(__hmul2_rn(__hadd2_rn(low, offset), scale_low));
      operand[2 * half + 1] = as_word(__hmul2_rn(__hadd2_rn(high, offset), scale_high));
    }
  }
};

static_assert(Int4::kPieceBytes % 16 == 0 && Int8::kPieceBytes % 16 == 0, "bulk copies move 16-byte multiples");

}  // namespace pilotfish::cuda
