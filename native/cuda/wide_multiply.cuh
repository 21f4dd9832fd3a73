// A warpgroup's product of 32 or 64 tokens with 128 weight rows, one chunk of columns, by wgmma: a warp has a piece of
// 32 rows, its 16 of either row tile. The same sums as lowbit_multiply.cuh.
#pragma once

#include "half_format.cuh"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "wgmma.cuh"

namespace pilotfish::cuda {

template <int kTokenTiles>
using WideSums = float4[kTilesPerPiece][kTokenTiles];

/// A piece's integers of 32 columns as operands, and its scales of a chunk.
template <class Format>
class WideWeights {
 public:
  __device__ explicit WideWeights(const uint8_t* piece) : piece_(piece), lane_(threadIdx.x % kWarpSize) {
#pragma unroll
    for (int tile = 0; tile < kTilesPerPiece; ++tile) {
      load_scales(tile, 0, scale_[tile][0]);
      if constexpr (Format::kHasOffsets) load_scales(tile, 1, offset_[tile][0]);
    }
  }

  __device__ __forceinline__ void unpack(int block, int tile, uint32_t (&operands)[2][4]) {
    constexpr int kBlocksPerVector = Format::kBlocks / 2;
    if (block % kBlocksPerVector == 0) {
      *reinterpret_cast<uint4*>(&words_[tile][0]) =
          reinterpret_cast<const uint4*>(piece_)[(tile * 2 + block / kBlocksPerVector) * kWarpSize + lane_];
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
  __device__ __forceinline__ void load_scales(int tile, int plane, __half* scales) const {
    using ScaleVector = typename Format::ScaleVector;
    *reinterpret_cast<ScaleVector*>(scales) = reinterpret_cast<const ScaleVector*>(
        piece_ + kIntegerBytes + plane * Format::kScaleBytes)[tile * 8 + lane_ / 4];
  }

  const uint8_t* piece_;
  int lane_;
  alignas(16) uint32_t words_[kTilesPerPiece][kWordsPerVector];
  alignas(16) __half scale_[kTilesPerPiece][2][Format::kBlocks];
  alignas(16) __half offset_[kTilesPerPiece][2][Format::kHasOffsets ? Format::kBlocks : 1];
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
template <class Format, int kTokenTiles>
__device__ __forceinline__ void add_block(const WideWeights<Format>& weights, int block, int tile,
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

template <class Format>
__device__ __forceinline__ void unpack_step(WideWeights<Format>& weights, int step, uint32_t (&operands)[2][4]) {
  weights.unpack(step / kTilesPerPiece, step % kTilesPerPiece, operands);
  hold(operands);
}

/// f16 weights: the sums themselves are what is multiplied into.
__device__ __forceinline__ void load_wide_block(const uint8_t* piece, int block, uint32_t (&operands)[2][2][4]) {
#pragma unroll
  for (int i = 0; i < kTilesPerPiece * 2; ++i) {
    const int tile = i / 2, step = i % 2;
    reinterpret_cast<uint4&>(operands[tile][step]) = reinterpret_cast<const uint4*>(
        piece + tile * Half::kTileBytes + (block * 2 + step) * Half::kStepBytes)[threadIdx.x % kWarpSize];
  }
}

template <int kTokenTiles>
__device__ __forceinline__ void multiply_wide_halves(const uint8_t* piece, uint32_t activations,
                                                     WideSums<kTokenTiles>& sums) {
  alignas(16) uint32_t weights[2][kTilesPerPiece][2][4];
  load_wide_block(piece, 0, weights[0]);
#pragma unroll
  for (int block = 0; block < Half::kBlocks; ++block) {
    begin_multiplications();
#pragma unroll
    for (int i = 0; i < 2 * kTilesPerPiece; ++i) {
      const int step = i / kTilesPerPiece, tile = i % kTilesPerPiece;
      multiply_async(sums[tile], weights[block % 2][tile][step],
                     token_columns<kTokenTiles>(activations, block * 2 + step), 1);
    }
    commit_multiplications();
    if (block + 1 < Half::kBlocks) load_wide_block(piece, block + 1, weights[(block + 1) % 2]);
  }
  wait_for_multiplications<0>();
#pragma unroll
  for (auto& tile : sums) hold(tile);
}

/// While the tensor cores multiply 32 columns of one row tile the next ones are unpacked, and, where a product may lag,
/// those before are added.
template <class Format, int kTokenTiles, int kLag>
__device__ __forceinline__ void multiply_wide_integers(const uint8_t* piece, uint32_t activations,
                                                       const float4* column_sums, WideSums<kTokenTiles>& sums) {
  constexpr int kSteps = Format::kBlocks * kTilesPerPiece;
  WideWeights<Format> weights(piece);
  uint32_t unpacked[2][2][4];
  float4 parts[kLag + 1][kTokenTiles];
  weights.unpack(0, 0, unpacked[0]);
#pragma unroll
  for (int i = 0; i < kSteps + kLag; ++i) {
    if (i < kSteps) start_block(parts[i % (kLag + 1)], unpacked[i % 2], activations, i / kTilesPerPiece);
    if (kLag == 0 && i + 1 < kSteps) unpack_step(weights, i + 1, unpacked[(i + 1) % 2]);
    if (i >= kLag) {
      const int done = i - kLag, block = done / kTilesPerPiece, tile = done % kTilesPerPiece;
      i < kSteps ? wait_for_multiplications<kLag>() : wait_for_multiplications<0>();
      hold(parts[done % (kLag + 1)]);
      add_block<Format, kTokenTiles>(weights, block, tile, column_sums + block * kTokenTiles * 4,
                                     parts[done % (kLag + 1)], sums[tile]);
    }
    if (kLag == 1 && i + 1 < kSteps) unpack_step(weights, i + 1, unpacked[(i + 1) % 2]);
  }
}

/// Adds one chunk in ascending order of its columns. `activations`: their address in shared memory; `column_sums`:
/// [blocks][token tiles][4], from this lane's place on, for formats with offsets. `kLag`: 1, or 0 where registers are
/// few.
template <class Format, int kTokenTiles, int kLag>
__device__ __forceinline__ void multiply_wide_chunk(const uint8_t* piece, uint32_t activations,
                                                    const float4* column_sums, WideSums<kTokenTiles>& sums) {
  if constexpr (kIsHalf<Format>) {
    multiply_wide_halves<kTokenTiles>(piece, activations, sums);
  } else {
    multiply_wide_integers<Format, kTokenTiles, kLag>(piece, activations, column_sums, sums);
  }
}

}  // namespace pilotfish::cuda
