// A warp's product of its slice of a piece with up to eight tokens, half a chunk at a time, with few registers: warps
// that wait with their weights unpacked must leave room for others.
#pragma once

#include "common.cuh"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"

namespace pilotfish::cuda {

/// Half a chunk of a piece, as this lane multiplies it.
template <class Format>
struct HalfChunk {
  static constexpr int kBlocks = Format::kBlocks / 2;
  static constexpr int kColumns = Format::kChunkColumns / 2;

  uint32_t operands[kBlocks][kTilesPerPiece][2][4];
  alignas(4) __half scale[kTilesPerPiece][2][kBlocks];
  alignas(4) __half offset[kTilesPerPiece][2][Format::kHasOffsets ? kBlocks : 1];

  /// `piece`: in shared memory; `half`: 0 or 1.
  __device__ __forceinline__ void unpack(const uint8_t* piece, int half) {
    const int lane = threadIdx.x % kWarpSize;
    const uint8_t* const scales = piece + kIntegerBytes + lane / 4 * 4 * Format::kBlocks + half * kBlocks * 2;
#pragma unroll
    for (int tile = 0; tile < kTilesPerPiece; ++tile) {
      alignas(16) uint32_t words[kWordsPerVector];
      *reinterpret_cast<uint4*>(words) = reinterpret_cast<const uint4*>(piece)[(tile * 2 + half) * kWarpSize + lane];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const uint8_t* const at = scales + (tile * 16 + row) * Format::kBlocks * 2;
        read(scale[tile][row], at);
        if constexpr (Format::kHasOffsets) read(offset[tile][row], at + Format::kScaleBytes);
      }
#pragma unroll
      for (int i = 0; i < kBlocks * 2; ++i) Format::unpack(operands[i / 2][tile][i % 2], words, i);
    }
  }

  /// Makes the compiler unpack here, not where the operands are used, after a wait. No integer of up to 8 bits has ones
  /// in the last bits of an f16.
  __device__ __forceinline__ void settle() const {
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kBlocks * kTilesPerPiece * 8; ++i) {
      bits |= operands[i / (kTilesPerPiece * 8)][i / 8 % kTilesPerPiece][i / 4 % 2][i % 4];
    }
    if (bits == ~0u) __trap();
  }

  /// `activations`: shared-memory address of this lane's ldmatrix row.
  __device__ __forceinline__ void multiply(uint32_t activations, float4 (&sums)[kTilesPerPiece]) const {
    uint32_t x[kBlocks][4];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) load_matrices(x[block], activations + block * kBlockColumns * 2);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      [[maybe_unused]] float4 columns;
      if constexpr (Format::kHasOffsets) columns = column_sums(x[block]);
#pragma unroll
      for (int tile = 0; tile < kTilesPerPiece; ++tile) {
        const uint32_t (&w)[2][4] = operands[block][tile];
        const float4 part = pilotfish::cuda::multiply(
            w[1], x[block][2], x[block][3], pilotfish::cuda::multiply(w[0], x[block][0], x[block][1], float4{}));
        add_scaled(sums[tile], part, __half2float(scale[tile][0][block]), __half2float(scale[tile][1][block]));
        if constexpr (Format::kHasOffsets) {
          add_scaled(sums[tile], columns, __half2float(offset[tile][0][block]), __half2float(offset[tile][1][block]));
        }
      }
    }
  }

 private:
  __device__ __forceinline__ static void read(__half (&halves)[kBlocks], const uint8_t* at) {
    if constexpr (kBlocks == 2) {
      *reinterpret_cast<uint32_t*>(halves) = *reinterpret_cast<const uint32_t*>(at);
    } else {
      static_assert(kBlocks == 1);
      halves[0] = *reinterpret_cast<const __half*>(at);
    }
  }
};

}  // namespace pilotfish::cuda
