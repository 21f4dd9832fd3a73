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

// Activations of a chunk in shared memory: for every 64 columns [tokens][128 bytes], where a row's vectors of 8 columns
// change places, vector v of token t going to v ^ t % 8. So copies by a tensor map leave them and wgmma reads them
// (both from multiples of 1024 bytes on), and ldmatrix meets no bank twice.
inline constexpr int kMapColumns = 64, kMapRowBytes = kMapColumns * 2;

template <class Format>
__host__ __device__ constexpr int activation_bytes(int num_tokens) {
  return Format::kChunkColumns * 2 * num_tokens;
}
/// Byte of a vector of 8 columns.
__host__ __device__ constexpr int activation_place(int token, int vector, int num_tokens) {
  return (vector / 8 * num_tokens + token) * kMapRowBytes + (vector ^ token) % 8 * 16;
}
/// Shared-memory address of this lane's row for ldmatrix: the first 32 columns of the first eight tokens.
__device__ __forceinline__ uint32_t lane_activations(uint32_t activations) {
  const int lane = threadIdx.x % kWarpSize;
  return activations + activation_place(lane % 8, lane / 8, 0);
}
/// 32 columns of eight tokens as operands.
template <int kTokenTiles>
__device__ __forceinline__ void read_activations(uint32_t (&x)[4], uint32_t lane_activations, int block, int tokens) {
  constexpr int kMapBlocks = kMapColumns / kBlockColumns, kMapBytes = kTokenTiles * kTokenTile * kMapRowBytes;
  load_matrices(x, (lane_activations ^ block % kMapBlocks * kBlockColumns * 2) + block / kMapBlocks * kMapBytes +
                       tokens * kTokenTile * kMapRowBytes);
}

/// Sums of 32 columns of the activations, which an offset a weight block multiplies: ones as weights.
__device__ __forceinline__ float4 column_sums(const uint32_t (&x)[4]) {
  constexpr uint32_t kOnes = 0x3C003C00;
  constexpr uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
  return multiply(ones, x[2], x[3], multiply(ones, x[0], x[1], float4{}));
}

template <class Shape>
using Sums = float4[Shape::kRowTiles][Shape::kTokenTiles];

__device__ __forceinline__ void add_scaled(float4& sum, const float4& part, float low, float high) {
  sum.x = fmaf(part.x, low, sum.x);
  sum.y = fmaf(part.y, low, sum.y);
  sum.z = fmaf(part.z, high, sum.z);
  sum.w = fmaf(part.w, high, sum.w);
}

/// The part of a stage that one warp multiplies.
struct ChunkView {
  const uint8_t* piece;
  uint32_t activations;  // lane_activations()
  int first_tile = 0;    // of the piece's row tiles
};

/// What is read before it is used, as far as registers allow: it hides the latency of shared memory.
template <class Format, class Shape>
struct AtOnce {
  static constexpr int kBlocksPerVector = Format::kBlocks / 2;  // of 16 bytes a lane and tile
  static constexpr int kBlocks = Shape::kTokenTiles <= 2 ? kBlocksPerVector : 1;
  static constexpr int kTokens = Shape::kTokenTiles % 2 == 0 ? 2 : 1;
};

/// Unpacked weights of the columns at hand, and the scales of the whole chunk.
template <class Format, class Shape>
struct Weights {
  uint32_t operands[AtOnce<Format, Shape>::kBlocks][Shape::kRowTiles][2][4];
  alignas(16) uint32_t words[Shape::kRowTiles][kWordsPerVector];
  alignas(16) __half scale[Shape::kRowTiles][2][Format::kBlocks];
  alignas(16) __half offset[Shape::kRowTiles][2][Format::kHasOffsets ? Format::kBlocks : 1];

  __device__ __forceinline__ void load_scales(const uint8_t* piece, int first_tile) {
    using ScaleVector = typename Format::ScaleVector;
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
      *reinterpret_cast<ScaleVector*>(&scale[tile][0][0]) =
          reinterpret_cast<const ScaleVector*>(piece + kIntegerBytes)[(first_tile + tile) * 8 + lane / 4];
      if constexpr (Format::kHasOffsets) {
        *reinterpret_cast<ScaleVector*>(&offset[tile][0][0]) = reinterpret_cast<const ScaleVector*>(
            piece + kIntegerBytes + Format::kScaleBytes)[(first_tile + tile) * 8 + lane / 4];
      }
    }
  }

  __device__ __forceinline__ void unpack(const uint8_t* piece, int first_tile, int first_block) {
    constexpr int kBlocksPerVector = AtOnce<Format, Shape>::kBlocksPerVector;
    const int lane = threadIdx.x % kWarpSize, vector = first_block / kBlocksPerVector;
#pragma unroll
    for (int tile = 0; tile < Shape::kRowTiles; ++tile) {
      if (first_block % kBlocksPerVector == 0) {
        *reinterpret_cast<uint4*>(&words[tile][0]) =
            reinterpret_cast<const uint4*>(piece)[((first_tile + tile) * 2 + vector) * kWarpSize + lane];
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
  constexpr int kRowTiles = Shape::kRowTiles;
  uint32_t x[kBlocks][kTokens][4];
#pragma unroll
  for (int i = 0; i < kBlocks * kTokens; ++i) {
    read_activations<Shape::kTokenTiles>(x[i / kTokens][i % kTokens], chunk.activations, first_block + i / kTokens,
                                         first_tokens + i % kTokens);
  }
  [[maybe_unused]] float4 columns = {};
#pragma unroll
  for (int i = 0; i < kBlocks * kTokens * kRowTiles; ++i) {
    const int tile = i % kRowTiles, tokens = i / kRowTiles % kTokens, block = i / kRowTiles / kTokens;
    const uint32_t (&b)[4] = x[block][tokens];
    const uint32_t (&a)[2][4] = weights.operands[block][tile];
    const float4 part = multiply(a[1], b[2], b[3], multiply(a[0], b[0], b[1], float4{}));
    float4& sum = sums[tile][first_tokens + tokens];
    add_scaled(sum, part, __half2float(weights.scale[tile][0][first_block + block]),
               __half2float(weights.scale[tile][1][first_block + block]));
    if constexpr (Format::kHasOffsets) {
      if (tile == 0) columns = column_sums(b);
      add_scaled(sum, columns, __half2float(weights.offset[tile][0][first_block + block]),
                 __half2float(weights.offset[tile][1][first_block + block]));
    }
  }
}

/// Adds one chunk of columns in ascending order, 32 columns (one scale) at a time.
template <class Format, class Shape>
__device__ __forceinline__ void multiply_chunk(const ChunkView& chunk, Sums<Shape>& sums) {
  Weights<Format, Shape> weights;
  weights.load_scales(chunk.piece, chunk.first_tile);
#pragma unroll
  for (int block = 0; block < Format::kBlocks; block += AtOnce<Format, Shape>::kBlocks) {
    weights.unpack(chunk.piece, chunk.first_tile, block);
#pragma unroll
    for (int tokens = 0; tokens < Shape::kTokenTiles; tokens += AtOnce<Format, Shape>::kTokens) {
      multiply_tokens<Format, Shape>(chunk, weights, block, tokens, sums);
    }
  }
}

}  // namespace pilotfish::cuda
