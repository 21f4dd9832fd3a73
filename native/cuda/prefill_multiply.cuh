// A warp's product of 32 weight rows with 32 tokens, one chunk of columns: the same instructions on the same values in
// the same order as lowbit_multiply.cuh and half_linear.cu, so that a row's bits are those of a pass of few rows.
#pragma once

#include "common.cuh"
#include "half_format.cuh"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "prefill_operands.cuh"
#include "wide_multiply.cuh"

namespace pilotfish::cuda {

// Two warps share a piece: with wgmma each has a row tile, else each has half of the tokens.
inline constexpr int kPieceShares = 2;
inline constexpr int kWarpRowTiles = kHasWgmma ? kTilesPerPiece / kPieceShares : kTilesPerPiece;
inline constexpr int kWarpTokenTiles = kHasWgmma ? kGroupTokenTiles : kGroupTokenTiles / kPieceShares;

using PrefillSums = float4[kWarpRowTiles][kWarpTokenTiles];

/// The weights of 32 columns, unpacked, with the scales of a chunk.
template <class Format>
class PrefillWeights {
 public:
  __device__ explicit PrefillWeights(const uint8_t* piece) : piece_(piece), lane_(threadIdx.x % kWarpSize) {
#pragma unroll
    for (int tile = 0; tile < kWarpRowTiles; ++tile) {
      load_scales(tile, 0, scale_[tile][0]);
      if constexpr (Format::kHasOffsets) load_scales(tile, 1, offset_[tile][0]);
    }
  }

  __device__ __forceinline__ void unpack(int block) {
    constexpr int kBlocksPerVector = Format::kBlocks / 2;
#pragma unroll
    for (int tile = 0; tile < kWarpRowTiles; ++tile) {
      if (block % kBlocksPerVector == 0) {
        *reinterpret_cast<uint4*>(&words_[tile][0]) =
            reinterpret_cast<const uint4*>(piece_)[(tile * 2 + block / kBlocksPerVector) * kWarpSize + lane_];
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        Format::unpack(operands[tile][step], words_[tile], block % kBlocksPerVector * 2 + step);
      }
    }
  }

  __device__ __forceinline__ float scale(int tile, int half, int block) const {
    return __half2float(scale_[tile][half][block]);
  }
  __device__ __forceinline__ float offset(int tile, int half, int block) const {
    return __half2float(offset_[tile][half][block]);
  }

  uint32_t operands[kWarpRowTiles][2][4];

 private:
  __device__ __forceinline__ void load_scales(int tile, int plane, __half* scales) const {
    using ScaleVector = typename Format::ScaleVector;
    *reinterpret_cast<ScaleVector*>(scales) = reinterpret_cast<const ScaleVector*>(
        piece_ + kIntegerBytes + plane * Format::kScaleBytes)[tile * 8 + lane_ / 4];
  }

  const uint8_t* piece_;
  int lane_;
  alignas(16) uint32_t words_[kWarpRowTiles][kWordsPerVector];
  alignas(16) __half scale_[kWarpRowTiles][2][Format::kBlocks];
  alignas(16) __half offset_[kWarpRowTiles][2][Format::kHasOffsets ? Format::kBlocks : 1];
};

/// f16 weights need no unpacking and no scales.
template <>
class PrefillWeights<Half> {
 public:
  __device__ explicit PrefillWeights(const uint8_t* piece)
      : lane_operands_(reinterpret_cast<const uint4*>(piece) + threadIdx.x % kWarpSize) {}

  __device__ __forceinline__ void unpack(int block) {
#pragma unroll
    for (int i = 0; i < kWarpRowTiles * 2; ++i) {
      constexpr int kTile = Half::kTileBytes / 16;
      reinterpret_cast<uint4&>(operands[i / 2][i % 2]) =
          lane_operands_[i / 2 * kTile + (block * 2 + i % 2) * kWarpSize];
    }
  }

  alignas(16) uint32_t operands[kWarpRowTiles][2][4];

 private:
  const uint4* lane_operands_;
};

__device__ __forceinline__ void multiply_block(const PrefillWeights<Half>& weights, const uint4& x, float4* sums) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int tile = 0; tile < kWarpRowTiles; ++tile) {
      float4& sum = sums[tile * kWarpTokenTiles];
      sum = multiply(weights.operands[tile][step], step ? x.z : x.x, step ? x.w : x.y, sum);
    }
  }
}

/// Adds 32 columns of one token tile. `columns`: their sums, for formats with offsets.
template <class Format>
__device__ __forceinline__ void multiply_block(const PrefillWeights<Format>& weights, int block, const uint4& x,
                                               [[maybe_unused]] const float4* columns, float4* sums) {
#pragma unroll
  for (int tile = 0; tile < kWarpRowTiles; ++tile) {
    float4& sum = sums[tile * kWarpTokenTiles];
    const float4 part =
        multiply(weights.operands[tile][1], x.z, x.w, multiply(weights.operands[tile][0], x.x, x.y, float4{}));
    add_scaled(sum, part, weights.scale(tile, 0, block), weights.scale(tile, 1, block));
    if constexpr (Format::kHasOffsets) {
      add_scaled(sum, *columns, weights.offset(tile, 0, block), weights.offset(tile, 1, block));
    }
  }
}

/// Adds one chunk in ascending order of its columns. `operands`: of the warp's first token tile, in the chunk of
/// its token group.
template <class Format>
__device__ __forceinline__ void multiply_prefill_chunk(const uint8_t* piece, const uint8_t* operands, int first_tile,
                                                       PrefillSums& sums) {
  using Operands = ChunkOperands<Format>;
  const int lane = threadIdx.x % kWarpSize;
  PrefillWeights<Format> weights(piece);
#pragma unroll
  for (int block = 0; block < Format::kBlocks; ++block) {
    weights.unpack(block);
#pragma unroll
    for (int tokens = 0; tokens < kWarpTokenTiles; ++tokens) {
      const uint4 x = reinterpret_cast<const uint4*>(operands + Operands::tile(block, tokens) +
                                                     Operands::tile(0, first_tile))[lane];
      if constexpr (kIsHalf<Format>) {
        multiply_block(weights, x, &sums[0][tokens]);
      } else {
        const auto* columns = reinterpret_cast<const float4*>(operands + Operands::sums(block, tokens) +
                                                              first_tile * Operands::kSumTileBytes);
        multiply_block<Format>(weights, block, x, columns + lane % 4, &sums[0][tokens]);
      }
    }
  }
}

}  // namespace pilotfish::cuda
