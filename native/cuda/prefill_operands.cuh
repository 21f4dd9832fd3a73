// Activations of a prompt in the order that the tensor cores of prefill_linear.cu read them in, so that a stage of its
// ring is one contiguous copy: [groups of 64 tokens][chunks of columns][blocks of 32 columns][token tiles][lanes][16
// bytes]; for integers, behind the blocks of a chunk, the sums that multiplications start from, [blocks][token tiles][4
// lanes] float4. Then a scale a token: what remains of the norm.
#pragma once

#include "half_format.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "wgmma.cuh"

namespace pilotfish::cuda {

inline constexpr int kGroupTokens = 64;
inline constexpr int kGroupTokenTiles = kGroupTokens / kTokenTile;

inline constexpr int kWideStepBytes = kGroupTokens * kStepColumns * 2;  // wgmma.cuh: 16 columns of 64 tokens

/// One token group's columns of one chunk. With wgmma its tokens lie in the order of wgmma.cuh instead, and offset sums
/// are there for the formats that add them.
template <class Format>
struct ChunkOperands {
  static constexpr int kTileBytes = kWarpSize * 16;  // 32 columns of 8 tokens
  static constexpr int kOffsetTileBytes = 4 * 16;
  static constexpr int kOffsets = Format::kBlocks * kGroupTokenTiles * kTileBytes;
  static constexpr int kBytes =
      kOffsets + (kIsHalf<Format> ? 0 : Format::kBlocks * kGroupTokenTiles * kOffsetTileBytes);

  __host__ __device__ static constexpr int tile(int block, int token_tile) {
    return (block * kGroupTokenTiles + token_tile) * kTileBytes;
  }
  __host__ __device__ static constexpr int offsets(int block, int token_tile) {
    return kOffsets + (block * kGroupTokenTiles + token_tile) * kOffsetTileBytes;
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
