// Products with the cache, whatever its type: 16 queries with a chunk of 32 keys, and their weights with the values
// of 16.
#pragma once

#include <type_traits>

#include "attention_bytes.cuh"
#include "attention_halves.cuh"

namespace pilotfish::cuda {

/// A warp's 16 queries as tensor-core operands: where they lie in shared memory, or in registers.
template <int kDim>
struct SharedQueries {
  uint32_t address;

  __device__ void read(uint32_t rows) { address = rows + lane_rows<kQueryBytes<kDim>>(); }
  __device__ void load(int step, uint32_t (&operand)[4]) const { load_matrices(operand, address + step * 32); }
};

template <int kDim>
struct HeldQueries {
  uint32_t operands[kDim / 16][4];

  __device__ void read(uint32_t rows) {
    SharedQueries<kDim> shared;
    shared.read(rows);
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) shared.load(step, operands[step]);
  }
  __device__ void load(int step, uint32_t (&operand)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) operand[i] = operands[step][i];
  }
};

/// `keys`: address of a chunk's rows; key_scales: of the chunk, where there are some.
template <CacheType kType, int kDim, class Queries>
__device__ __forceinline__ void score_chunk(const Queries& queries, const float4& query_sums, uint32_t keys,
                                            const float* key_scales, Scores& scores) {
  float4 sums[kChunkKeys / 8] = {};
  if constexpr (kHasScales<kType>) {
    score_bytes<kType, kDim>(queries, query_sums, keys, key_scales, sums);
  } else {
    score_halves<kType, kDim>(queries, keys, sums);
  }
#pragma unroll
  for (int i = 0; i < kChunkKeys / 8; ++i) {
    scores[0][2 * i] = sums[i].x;
    scores[0][2 * i + 1] = sums[i].y;
    scores[1][2 * i] = sums[i].z;
    scores[1][2 * i + 1] = sums[i].w;
  }
}

/// Adds 16 weighted values of a slab, a quarter of 128 columns. `values`: address of their rows.
template <CacheType kType, int kDim>
__device__ __forceinline__ void weigh(const Weights& weights, uint32_t values, int slab, float4 (&sums)[4]) {
  if constexpr (kHasScales<kType>) {
    weigh_bytes<kType, kDim>(weights, values, slab, sums);
  } else {
    weigh_halves<kType, kDim>(weights, values, slab, sums);
  }
}

/// Adds up weights for what int8 values have too much.
template <CacheType kType>
__device__ __forceinline__ void add_weights(const Weights& weights, float4& sums) {
  if constexpr (kHasScales<kType>) sums = multiply(weights, kOnes, kOnes, sums);
}

/// What a lane has of a slab, of its query `half`: pieces of neighbouring columns.
template <CacheType kType>
using Piece = std::conditional_t<kHasScales<kType>, float4, float2>;
template <CacheType kType>
inline constexpr int kPieces = kHasScales<kType> ? 2 : 4;

template <CacheType kType>
__device__ __forceinline__ int piece_column(int slab, int piece) {
  const int lane = threadIdx.x % 4;
  return slab * 32 + (kHasScales<kType> ? piece * 16 + lane * 4 : piece * 8 + lane * 2);
}

template <CacheType kType>
__device__ __forceinline__ Piece<kType> piece_of(const float4 (&sums)[4], int half, int piece) {
  if constexpr (kHasScales<kType>) {
    const float4 &even = sums[2 * piece], &odd = sums[2 * piece + 1];
    return half == 0 ? make_float4(even.x, odd.x, even.y, odd.y) : make_float4(even.z, odd.z, even.w, odd.w);
  } else {
    return half == 0 ? make_float2(sums[piece].x, sums[piece].y) : make_float2(sums[piece].z, sums[piece].w);
  }
}

}  // namespace pilotfish::cuda
