// Activations of a prompt in the order that the tensor cores of prefill_linear.cu read them in, so that a stage of its
// ring is one contiguous copy: [groups of 64 tokens][chunks of columns], each of these [blocks of 32 columns][token
// tiles][lanes][16 bytes], with wgmma as lowbit_multiply.cuh places them; for formats with offsets, behind the blocks
// of a chunk, sums of 32 columns, [blocks][token tiles][4 lanes] float4. Then a scale a token: what remains of the
// norm.
#pragma once

#include "half_format.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "wgmma.cuh"

namespace pilotfish::cuda {

inline constexpr int kGroupTokens = 64;
inline constexpr int kGroupTokenTiles = kGroupTokens / kTokenTile;

/// One token group's columns of one chunk.
template <class Format>
struct ChunkOperands {
  static constexpr int kTileBytes = kWarpSize * 16;  // 32 columns of 8 tokens
  static constexpr int kSumTileBytes = 4 * 16;
  static constexpr int kSums = Format::kBlocks * kGroupTokenTiles * kTileBytes;
  static constexpr int kBytes = kSums + (Format::kHasOffsets ? Format::kBlocks * kGroupTokenTiles * kSumTileBytes : 0);

  __host__ __device__ static constexpr int tile(int block, int token_tile) {
    return (block * kGroupTokenTiles + token_tile) * kTileBytes;
  }
  __host__ __device__ static constexpr int sums(int block, int token_tile) {
    return kSums + (block * kGroupTokenTiles + token_tile) * kSumTileBytes;
  }
};

/// Where the parts lie in the scratch memory of a launch.
struct PrefillOperands {
  uint8_t* chunks;
  float* scales;  // [groups, 64]

  template <class Format>
  static PrefillOperands in(void* scratch, int num_rows, int num_chunks) {
    auto* const chunks = static_cast<uint8_t*>(scratch);
    const size_t num_groups = (num_rows + kGroupTokens - 1) / kGroupTokens;
    return {chunks, reinterpret_cast<float*>(chunks + num_groups * num_chunks * ChunkOperands<Format>::kBytes)};
  }
};

/// Fills `operands` from linear.x. Tokens past num_rows and columns past K become zeros.
template <class Format>
cudaError_t launch_prefill_operands(const LowbitLinear& linear, const PrefillOperands& operands, cudaStream_t stream);

}  // namespace pilotfish::cuda
