// A chunk of 32 keys added to the running result of 16 queries, the unit that every pass is put together from.
#pragma once

#include "attention_bytes.cuh"
#include "attention_halves.cuh"

namespace pilotfish::cuda {

/// Adds a chunk of keys to the running result of the first 8 or 16 queries. `queries`: shared memory, rows of
/// kQueryBytes; `before_values` returns once the values have landed.
template <CacheType kType, Order kOrder, int kDim, class BeforeValues>
__device__ __forceinline__ void attend_chunk(uint32_t queries, const ChunkPlace& chunk, int first_key,
                                             const KeyRange (&seen)[2], const ScoreRule& rule, bool has_upper,
                                             Running<kDim>& running, const BeforeValues& before_values) {
  Scores scores;
  if constexpr (kHasScales<kType>) {
    score_bytes<kType, kDim>(queries, chunk, scores);
  } else {
    score_halves<kType, kDim>(queries, chunk.keys, scores);
  }
  Weights weights = {};
  Join factors[2] = {{1, 0}, {1, 0}};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 1 && !has_upper) continue;
    float row[kChunkKeys / 4];
#pragma unroll
    for (int i = 0; i < kChunkKeys / 8; ++i) {
      row[2 * i] = half == 0 ? scores[i].x : scores[i].z;
      row[2 * i + 1] = half == 0 ? scores[i].y : scores[i].w;
    }
    uint32_t pairs[kChunkKeys / 8];
    const Softmax part = soften<kType>(row, seen[half], first_key, rule, chunk.value_scales, pairs);
    factors[half] = join(running.softmax[half], part);
#pragma unroll
    for (int i = 0; i < kChunkKeys / 8; ++i) weights[i / 2][i % 2 * 2 + half] = pairs[i];
  }
  before_values();
  if constexpr (kHasScales<kType>) {
    weigh_bytes<kType, kOrder, kDim>(weights, chunk.values, factors, running);
  } else {
    weigh_halves<kType, kOrder, kDim>(weights, chunk.values, factors, running);
  }
}

}  // namespace pilotfish::cuda
