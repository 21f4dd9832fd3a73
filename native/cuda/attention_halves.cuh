// Scores and weighted values of a chunk of a cache of f16 or bf16 on tensor cores.
#pragma once

#include "attention_softmax.cuh"

namespace pilotfish::cuda {

template <CacheType kType>
__device__ __forceinline__ float4 multiply_halves(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float4& c) {
  if constexpr (kType == CacheType::kBf16) return multiply_bfloats(a, b0, b1, c);
  return multiply(a, b0, b1, c);
}

template <CacheType kType, int kDim>
__device__ __forceinline__ void score_halves(uint32_t queries, uint32_t keys, Scores& scores) {
  constexpr int kBytes = kCacheRowBytes<kType, kDim>;
  const int lane = threadIdx.x % kWarpSize;
  queries += lane_rows<kQueryBytes<kDim>>();
  keys += (lane % 8 + lane / 16 * 8) * kBytes + lane / 8 % 2 * 16;
#pragma unroll
  for (int i = 0; i < kChunkKeys / 8; ++i) scores[i] = float4{};
#pragma unroll
  for (int columns = 0; columns < kDim; columns += 16) {
    uint32_t query[4];
    load_matrices(query, queries + columns * 2);
#pragma unroll
    for (int i = 0; i < kChunkKeys / 16; ++i) {
      uint32_t key[4];
      load_matrices(key, keys + i * 16 * kBytes + columns * 2);
      scores[2 * i] = multiply_halves<kType>(query, key[0], key[1], scores[2 * i]);
      scores[2 * i + 1] = multiply_halves<kType>(query, key[2], key[3], scores[2 * i + 1]);
    }
  }
}

template <CacheType kType, Order kOrder, int kDim>
__device__ __forceinline__ void weigh_halves(const Weights& weights, uint32_t values, const Join (&factors)[2],
                                             Running<kDim>& running) {
  constexpr int kBytes = kCacheRowBytes<kType, kDim>;
  values += lane_rows<kBytes>();
#pragma unroll
  for (int columns = 0; columns < kDim; columns += 16) {
    float4 sums[2] = {};
#pragma unroll
    for (int i = 0; i < kChunkKeys / 16; ++i) {
      uint32_t value[4];
      load_matrices_transposed(value, values + i * 16 * kBytes + columns * 2);
      sums[0] = multiply_halves<kType>(weights[i], value[0], value[1], sums[0]);
      sums[1] = multiply_halves<kType>(weights[i], value[2], value[3], sums[1]);
    }
    add_chunk<kOrder>(running, columns / 8, sums[0], factors);
    add_chunk<kOrder>(running, columns / 8 + 1, sums[1], factors);
  }
}

}  // namespace pilotfish::cuda
