// A warp's product of one piece of the weight with its columns of the activations, both in shared memory. Every sum is
// added in ascending order of the columns, whatever the number of tokens.
#pragma once

#include "common.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"

namespace pilotfish::cuda {

inline constexpr int kTokenTile = 8;  // tokens of one mma

/// What L2 keeps of a weight: a model that does not fit passes through, and leaves the cache to what does: the kernels'
/// code, activations, sums. Instructions that come from memory cost a small kernel more than its work.
__device__ __forceinline__ uint64_t cache_policy(Passes passes) {
  uint64_t policy;
  if (passes == Passes::kThroughCache) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

/// A token's columns of a chunk in shared memory, padded by 16 bytes: ldmatrix then meets no bank twice.
template <class Format>
inline constexpr int kActivationRowBytes = Format::kChunkColumns * 2 + 16;

/// What the unpacked integers' offsets add to sums of 32 columns, with its sign turned: offsets as weights.
template <class Format>
__device__ __forceinline__ float4 offset_sums(const uint32_t (&x)[4]) {
  const uint32_t offsets[4] = {Format::kOffsets[0], Format::kOffsets[1], Format::kOffsets[0], Format::kOffsets[1]};
  return multiply(offsets, x[2], x[3], multiply(offsets, x[0], x[1], float4{}));
}

template <class Shape>
using Sums = float4[kTilesPerPiece][Shape::kTokenTiles];

__device__ __forceinline__ void add_scaled(float4& sum, const float4& part, float low, float high) {
  sum.x = fmaf(part.x, low, sum.x);
  sum.y = fmaf(part.y, low, sum.y);
  sum.z = fmaf(part.z, high, sum.z);
  sum.w = fmaf(part.w, high, sum.w);
}

/// The part of a stage that one warp multiplies.
struct ChunkView {
  const uint8_t* piece;
  uint32_t activations;       // shared-memory address of this lane's ldmatrix row
  const float4* offset_sums;  // of this lane's tokens; used where shared
};

/// What is read before it is used, as far as registers allow: it hides the latency of shared memory.
template <class Format, class Shape>
struct AtOnce {
  static constexpr int kBlocksPerVector = Format::kBlocks / 2;  // of 16 bytes a lane and tile
  static constexpr int kBlocks = Shape::kTokenTiles <= 2 ? kBlocksPerVector : 1;
  static constexpr int kTokens = Shape::kTokenTiles < 2 ? 1 : 2;
};

/// Unpacked weights of the columns at hand, and the scales of the whole chunk.
template <class Format, class Shape>
struct Weights {
  uint32_t operands[AtOnce<Format, Shape>::kBlocks][kTilesPerPiece][2][4];
  alignas(16) uint32_t words[kTilesPerPiece][kWordsPerVector];
  alignas(16) __half scale[kTilesPerPiece][2][Format::kBlocks];
  alignas(16) __half offset[kTilesPerPiece][2][Format::kHasOffsets ? Format::kBlocks : 1];

  __device__ __forceinline__ void load_scales(const uint8_t* piece) {
    using ScaleVector = typename Format::ScaleVector;
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int tile = 0; tile < kTilesPerPiece; ++tile) {
      *reinterpret_cast<ScaleVector*>(&scale[tile][0][0]) =
          reinterpret_cast<const ScaleVector*>(piece + kIntegerBytes)[tile * 8 + lane / 4];
      if constexpr (Format::kHasOffsets) {
        *reinterpret_cast<ScaleVector*>(&offset[tile][0][0]) =
            reinterpret_cast<const ScaleVector*>(piece + kIntegerBytes + Format::kScaleBytes)[tile * 8 + lane / 4];
      }
    }
  }

  __device__ __forceinline__ void unpack(const uint8_t* piece, int first_block) {
    constexpr int kBlocksPerVector = AtOnce<Format, Shape>::kBlocksPerVector;
    const int lane = threadIdx.x % kWarpSize, vector = first_block / kBlocksPerVector;
#pragma unroll
    for (int tile = 0; tile < kTilesPerPiece; ++tile) {
      if (first_block % kBlocksPerVector == 0) {
        *reinterpret_cast<uint4*>(&words[tile][0]) =
            reinterpret_cast<const uint4*>(piece)[(tile * 2 + vector) * kWarpSize + lane];
      }
#pragma unroll
      for (int i = 0; i < AtOnce<Format, Shape>::kBlocks * 2; ++i) {
        Format::unpack(operands[i / 2][tile][i % 2], words[tile], first_block % kBlocksPerVector * 2 + i);
      }
    }
  }
};

/// Adds the columns at hand for a few token tiles.
template <class Format, class Shape>
__device__ __forceinline__ void multiply_tokens(const ChunkView& chunk, const Weights<Format, Shape>& weights,
                                                int first_block, int first_tokens, Sums<Shape>& sums) {
  constexpr int kBlocks = AtOnce<Format, Shape>::kBlocks, kTokens = AtOnce<Format, Shape>::kTokens;
  uint32_t x[kBlocks][kTokens][4];  // 32 columns of 8 tokens
  float4 offsets[kBlocks][kTokens];
#pragma unroll
  for (int i = 0; i < kBlocks * kTokens; ++i) {
    const int block = first_block + i / kTokens, tokens = first_tokens + i % kTokens;
    const int row_offset = tokens * kTokenTile * kActivationRowBytes<Format>;
    load_matrices(x[i / kTokens][i % kTokens], chunk.activations + row_offset + block * kBlockColumns * 2);
    if constexpr (Shape::kSharedOffsets) {
      offsets[i / kTokens][i % kTokens] = chunk.offset_sums[(block * Shape::kTokenTiles + tokens) * 4];
    }
  }
#pragma unroll
  for (int i = 0; i < kBlocks * kTokens * kTilesPerPiece; ++i) {
    const int tile = i % kTilesPerPiece, tokens = i / kTilesPerPiece % kTokens, block = i / kTilesPerPiece / kTokens;
    const uint32_t (&columns)[4] = x[block][tokens];
    if (!Shape::kSharedOffsets && tile == 0) offsets[block][tokens] = offset_sums<Format>(columns);
    const uint32_t (&operands)[2][4] = weights.operands[block][tile];
    const float4 part = multiply(operands[1], columns[2], columns[3],
                                 multiply(operands[0], columns[0], columns[1], offsets[block][tokens]));
    float4& sum = sums[tile][first_tokens + tokens];
    add_scaled(sum, part, __half2float(weights.scale[tile][0][first_block + block]),
               __half2float(weights.scale[tile][1][first_block + block]));
    if constexpr (Format::kHasOffsets) {
      const float even = offsets[block][tokens].x * Format::kSumOfOffsetSum;
      const float odd = offsets[block][tokens].y * Format::kSumOfOffsetSum;
      add_scaled(sum, make_float4(even, odd, even, odd), __half2float(weights.offset[tile][0][first_block + block]),
                 __half2float(weights.offset[tile][1][first_block + block]));
    }
  }
}

/// Adds one chunk of columns in ascending order, 32 columns (one scale) at a time.
template <class Format, class Shape>
__device__ __forceinline__ void multiply_chunk(const ChunkView& chunk, Sums<Shape>& sums) {
  Weights<Format, Shape> weights;
  weights.load_scales(chunk.piece);
#pragma unroll
  for (int block = 0; block < Format::kBlocks; block += AtOnce<Format, Shape>::kBlocks) {
    weights.unpack(chunk.piece, block);
#pragma unroll
    for (int tokens = 0; tokens < Shape::kTokenTiles; tokens += AtOnce<Format, Shape>::kTokens) {
      multiply_tokens<Format, Shape>(chunk, weights, block, tokens, sums);
    }
  }
}

}  // namespace pilotfish::cuda
