// Products with a cache of f16 on tensor cores.
#pragma once

#include "attention_softmax.cuh"

namespace pilotfish::cuda {

/// sums[i] of 16 queries and keys 8 i to 8 i + 7 of a chunk. `keys`: address of its rows.
template <CacheType kType, int kDim, class Queries>
__device__ __forceinline__ void score_halves(const Queries& queries, uint32_t keys, float4 (&sums)[kChunkKeys / 8]) {
  constexpr int kBytes = kCacheRowBytes<kType, kDim>;
  const int lane = threadIdx.x % kWarpSize;
  keys += (lane % 8 + lane / 16 * 8) * kBytes + lane / 8 % 2 * 16;
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    uint32_t query[4];
    queries.load(step, query);
#pragma unroll
    for (int i = 0; i < kChunkKeys / 16; ++i) {
      uint32_t key[4];
      load_matrices(key, keys + i * 16 * kBytes + step * 32);
      sums[2 * i] = multiply(query, key[0], key[1], sums[2 * i]);
      sums[2 * i + 1] = multiply(query, key[2], key[3], sums[2 * i + 1]);
    }
  }
}

/// Adds 16 weighted values of a slab of 32 columns. `values`: address of their rows.
template <CacheType kType, int kDim>
__device__ __forceinline__ void weigh_halves(const Weights& weights, uint32_t values, int slab, float4 (&sums)[4]) {
  values += lane_rows<kCacheRowBytes<kType, kDim>>() + slab * 64;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t value[4];
    load_matrices_transposed(value, values + i * 32);
    sums[2 * i] = multiply(weights, value[0], value[1], sums[2 * i]);
    sums[2 * i + 1] = multiply(weights, value[2], value[3], sums[2 * i + 1]);
  }
}

}  // namespace pilotfish::cuda
