// Products with a cache of bytes on tensor cores, made f16 in registers.
#pragma once

#include "attention_softmax.cuh"

namespace pilotfish::cuda {

inline constexpr uint32_t kOnes = 0x3C003C00;  // two f16

/// Sums of 16 queries' columns, for what bytes of keys have too much: the lane's queries are x (y) and z (w).
template <CacheType kType, int kDim, class Queries>
__device__ __forceinline__ float4 sums_of_queries(const Queries& queries) {
  float4 sums = {};
  if constexpr (kHasScales<kType>) {
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      uint32_t query[4];
      queries.load(step, query);
      sums = multiply(query, kOnes, kOnes, sums);
    }
  }
  return sums;
}

/// Takes off sums what `offsets`, sums of their other operand, are too much.
template <CacheType kType>
__device__ __forceinline__ void take_offset(const float4& offsets, float4& sums) {
  if constexpr (kHasScales<kType>) {
    constexpr float kOffset = ByteElement<kType>::kOffset;
    sums = make_float4(__fmaf_rn(-kOffset, offsets.x, sums.x), __fmaf_rn(-kOffset, offsets.y, sums.y),
                       __fmaf_rn(-kOffset, offsets.z, sums.z), __fmaf_rn(-kOffset, offsets.w, sums.w));
  }
}

/// sums[i] of 16 queries and keys 8 i to 8 i + 7 of a chunk. `keys`: address of its rows; scales: of its keys.
template <CacheType kType, int kDim, class Queries>
__device__ __forceinline__ void score_bytes(const Queries& queries, const float4& query_sums, uint32_t keys,
                                            const float* scales, float4 (&sums)[kChunkKeys / 8]) {
  using Element = ByteElement<kType>;
  const int lane = threadIdx.x % kWarpSize;
  keys += lane * kCacheRowBytes<kType, kDim>;
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    uint32_t query[4], key[4];
    queries.load(step, query);
    load_matrices(key, keys + step * 16);
#pragma unroll
    for (int i = 0; i < kChunkKeys / 8; ++i) {
      sums[i] =
          multiply(query, Element::template halves_of<0>(key[i]), Element::template halves_of<1>(key[i]), sums[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kChunkKeys / 8; ++i) {
    const float2 scale = *reinterpret_cast<const float2*>(scales + i * 8 + lane % 4 * 2);
    take_offset<kType>(query_sums, sums[i]);
    sums[i] = make_float4(__fmul_rn(sums[i].x, scale.x), __fmul_rn(sums[i].y, scale.y), __fmul_rn(sums[i].z, scale.x),
                          __fmul_rn(sums[i].w, scale.y));
  }
}

/// Adds 16 weighted values of a slab of 32 columns. `values`: address of their rows. Transposed, a matrix of bytes
/// gives pairs of columns: sums[2 i] are of the even ones of 16, sums[2 i + 1] of the odd ones.
template <CacheType kType, int kDim>
__device__ __forceinline__ void weigh_bytes(const Weights& weights, uint32_t values, int slab, float4 (&sums)[4]) {
  using Element = ByteElement<kType>;
  uint32_t words[4];  // of 16 columns keys 0 to 7 and 8 to 15, then of the others
  load_matrices_transposed(words, values + lane_rows<kCacheRowBytes<kType, kDim>>() + slab * 32);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t low = words[2 * i], high = words[2 * i + 1];
    sums[2 * i] =
        multiply(weights, Element::template column_of<0>(low), Element::template column_of<0>(high), sums[2 * i]);
    sums[2 * i + 1] =
        multiply(weights, Element::template column_of<1>(low), Element::template column_of<1>(high), sums[2 * i + 1]);
  }
}

}  // namespace pilotfish::cuda
