// A warpgroup's product of 24 to 64 tokens with one or both row tiles of four pieces, one chunk of columns, by wgmma: a
// warp has 16 rows of each. The same sums as lowbit_multiply.cuh.
#pragma once

#include "half_format.cuh"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "wgmma.cuh"

namespace pilotfish::cuda {

template <int kTokenTiles, int kRowTiles = kTilesPerPiece>
using WideSums = float4[kRowTiles][kTokenTiles];

/// A piece's integers of 32 columns as operands, and its scales of a chunk.
template <class Format, int kRowTiles>
class WideWeights {
 public:
  __device__ WideWeights(const uint8_t* piece, int first_tile)
      : integers_(reinterpret_cast<const uint4*>(piece) + first_tile * 2 * kWarpSize + threadIdx.x % kWarpSize),
        scales_(reinterpret_cast<const ScaleVector*>(piece + kIntegerBytes) + first_tile * 8 +
                threadIdx.x % kWarpSize / 4) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      load_scales(tile, 0, scale_[tile][0]);
      if constexpr (Format::kHasOffsets) load_scales(tile, 1, offset_[tile][0]);
    }
  }

  __device__ __forceinline__ void unpack(int block, int tile, uint32_t (&operands)[2][4]) {
    constexpr int kBlocksPerVector = Format::kBlocks / 2;
    if (block % kBlocksPerVector == 0) {
      *reinterpret_cast<uint4*>(&words_[tile][0]) = integers_[(tile * 2 + block / kBlocksPerVector) * kWarpSize];
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      Format::unpack(operands[step], words_[tile], block % kBlocksPerVector * 2 + step);
    }
  }

  __device__ __forceinline__ float scale(int tile, int half, int block) const {
    return __half2float(scale_[tile][half][block]);
  }
  __device__ __forceinline__ float offset(int tile, int half, int block) const {
    return __half2float(offset_[tile][half][block]);
  }

 private:
  using ScaleVector = typename Format::ScaleVector;

  __device__ __forceinline__ void load_scales(int tile, int plane, __half* scales) const {
    constexpr int kPlane = Format::kScaleBytes / sizeof(ScaleVector);
    *reinterpret_cast<ScaleVector*>(scales) = scales_[plane * kPlane + tile * 8];
  }

  const uint4* integers_;
  const ScaleVector* scales_;
  alignas(16) uint32_t words_[kRowTiles][kWordsPerVector];
  alignas(16) __half scale_[kRowTiles][2][Format::kBlocks];
  alignas(16) __half offset_[kRowTiles][2][Format::kHasOffsets ? Format::kBlocks : 1];
};

/// Starts the product of 32 columns.
template <int kTokenTiles>
__device__ __forceinline__ void start_block(float4 (&parts)[kTokenTiles], const uint32_t (&operands)[2][4],
                                            uint32_t activations, int block) {
  begin_multiplications();
  multiply_async(parts, operands[0], token_columns<kTokenTiles>(activations, block * 2), 0);
  multiply_async(parts, operands[1], token_columns<kTokenTiles>(activations, block * 2 + 1), 1);
  commit_multiplications();
}

/// Adds 32 columns of one row tile. `column_sums`: of this lane's tokens of the first token tile, for formats with
/// offsets.
template <class Format, int kRowTiles, int kTokenTiles>
__device__ __forceinline__ void add_block(const WideWeights<Format, kRowTiles>& weights, int block, int tile,
                                          [[maybe_unused]] const float4* column_sums,
                                          const float4 (&parts)[kTokenTiles], float4 (&sums)[kTokenTiles]) {
  const float low = weights.scale(tile, 0, block), high = weights.scale(tile, 1, block);
#pragma unroll
  for (int i = 0; i < kTokenTiles; ++i) {
    add_scaled(sums[i], parts[i], low, high);
    if constexpr (Format::kHasOffsets) {
      const float2 columns = *reinterpret_cast<const float2*>(column_sums + i * 4);
      add_scaled(sums[i], make_float4(columns.x, columns.y, columns.x, columns.y), weights.offset(tile, 0, block),
                 weights.offset(tile, 1, block));
    }
  }
}

/// f16 weights: the sums themselves are what is multiplied into.
template <int kRowTiles>
__device__ __forceinline__ void load_wide_block(const uint8_t* tiles, int block,
                                                uint32_t (&operands)[kRowTiles][2][4]) {
#pragma unroll
  for (int i = 0; i < kRowTiles * 2; ++i) {
    const int tile = i / 2, step = i % 2;
    reinterpret_cast<uint4&>(operands[tile][step]) = reinterpret_cast<const uint4*>(
        tiles + tile * Half::kTileBytes + (block * 2 + step) * Half::kStepBytes)[threadIdx.x % kWarpSize];
  }
}

template <int kRowTiles, int kTokenTiles>
__device__ __forceinline__ void multiply_wide_halves(const uint8_t* tiles, uint32_t activations,
                                                     WideSums<kTokenTiles, kRowTiles>& sums) {
  alignas(16) uint32_t weights[2][kRowTiles][2][4];
  load_wide_block(tiles, 0, weights[0]);
#pragma unroll
  for (int block = 0; block < Half::kBlocks; ++block) {
    begin_multiplications();
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int step = i / kRowTiles, tile = i % kRowTiles;
      multiply_async(sums[tile], weights[block % 2][tile][step],
                     token_columns<kTokenTiles>(activations, block * 2 + step), 1);
    }
    commit_multiplications();
    if (block + 1 < Half::kBlocks) load_wide_block(tiles, block + 1, weights[(block + 1) % 2]);
  }
  wait_for_multiplications<0>();
#pragma unroll
  for (auto& tile : sums) hold(tile);
}

/// One product at a time: with four warps a scheduler others unpack and add meanwhile, and registers are few.
template <class Format, int kRowTiles, int kTokenTiles>
__device__ __forceinline__ void multiply_wide_integers(const uint8_t* piece, int first_tile, uint32_t activations,
                                                       const float4* column_sums,
                                                       WideSums<kTokenTiles, kRowTiles>& sums) {
  WideWeights<Format, kRowTiles> weights(piece, first_tile);
  uint32_t operands[2][4];
  float4 parts[kTokenTiles];
#pragma unroll
  for (int i = 0; i < Format::kBlocks * kRowTiles; ++i) {
    const int block = i / kRowTiles, tile = i % kRowTiles;
    weights.unpack(block, tile, operands);
    hold(operands);
    start_block(parts, operands, activations, block);
    wait_for_multiplications<0>();
    hold(parts);
    add_block<Format, kRowTiles, kTokenTiles>(weights, block, tile, column_sums + block * kTokenTiles * 4, parts,
                                              sums[tile]);
  }
}

/// Adds one chunk in ascending order of its columns to the sums of the piece's row tiles from `first_tile` on.
/// `activations`: their address in shared memory; `column_sums`: [blocks][token tiles][4], from this lane's place on,
/// for formats with offsets.
template <class Format, int kRowTiles, int kTokenTiles>
__device__ __forceinline__ void multiply_wide_chunk(const uint8_t* piece, int first_tile, uint32_t activations,
                                                    const float4* column_sums, WideSums<kTokenTiles, kRowTiles>& sums) {
  if constexpr (kIsHalf<Format>) {
    multiply_wide_halves<kRowTiles, kTokenTiles>(piece + first_tile * Half::kTileBytes, activations, sums);
  } else {
    multiply_wide_integers<Format, kRowTiles, kTokenTiles>(piece, first_tile, activations, column_sums, sums);
  }
}

}  // namespace pilotfish::cuda
