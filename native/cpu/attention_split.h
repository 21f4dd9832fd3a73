// Attention of a tile's queries over one split: scores, softmax weights, weighted sum of values. Written with simd.h
// only. A score is one chain of multiply-adds over head_dim; an output one chain over the keys of the split.
#pragma once

#include "attention_chunk.h"
#include "attention_kernels.h"
#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

inline constexpr int64_t kMaxTileRows = 64;
inline constexpr int kMaxQueriesAtOnce = 8;
inline constexpr int kMaxVectorsAtOnce = 8;
inline constexpr int64_t kScoreStride = kSplitKeys + kChunkKeys;

// Where attend() works.
struct SplitWork {
  SplitView views[kMaxTileRows];
  int64_t first_slot;  // of all rows
  int64_t last_slot;
  float* scores;  // [num_queries][kScoreStride], by logical key
  float* chunk;   // keys or values of 16 slots
};

// Scores of kCount queries for a chunk of keys [head_dim][16].
template <int kCount>
inline void score_queries(const float* const* queries, const float* keys, int64_t head_dim, Floats* scores) {
  Floats sums[kCount];
#pragma GCC unroll 8
  for (int q = 0; q < kCount; ++q) sums[q] = zeros();
  for (int64_t d = 0; d < head_dim; ++d) {
    const Floats key = load(keys + d * kChunkKeys);
#pragma GCC unroll 8
    for (int q = 0; q < kCount; ++q) sums[q] = fma(broadcast(queries[q][d]), key, sums[q]);
  }
#pragma GCC unroll 8
  for (int q = 0; q < kCount; ++q) scores[q] = sums[q];
}

inline void score_queries(int count, const float* const* queries, const float* keys, int64_t head_dim, Floats* scores) {
  using Score = void (*)(const float* const*, const float*, int64_t, Floats*);
  static constexpr Score kTable[] = {score_queries<1>, score_queries<2>, score_queries<3>, score_queries<4>,
                                     score_queries<5>, score_queries<6>, score_queries<7>, score_queries<8>};
  kTable[count - 1](queries, keys, head_dim, scores);
}

// Appends the visible lanes to a query's scores. Lanes stored past the end are overwritten by the next chunk or by
// softmax.
inline void append_scores(Floats scores, uint32_t visible, float* to) {
  if ((visible & (visible + 1)) == 0) return store(to, scores);
  alignas(64) float lanes[kLanes];
  store(lanes, scores);
  for (; visible != 0; visible &= visible - 1) *to++ = lanes[__builtin_ctz(visible)];
}

// One query waiting to be scored against the current chunk.
struct PendingScores {
  const float* queries[kMaxQueriesAtOnce];
  float* to[kMaxQueriesAtOnce];
  uint32_t visible[kMaxQueriesAtOnce];
  int count = 0;

  void flush(const float* keys, int64_t head_dim) {
    if (count == 0) return;
    Floats scores[kMaxQueriesAtOnce];
    score_queries(count, queries, keys, head_dim, scores);
    for (int q = 0; q < count; ++q) append_scores(scores[q], visible[q], to[q]);
    count = 0;
  }
};

inline void score_split(const AttentionShape& shape, const KvPool& pool, const AttentionTile& tile, SplitWork& work) {
  const int64_t group = shape.group_size(), row_stride = shape.num_heads * shape.head_dim;
  int64_t num_scored[kMaxTileRows] = {};
  PendingScores pending;
  for (int64_t slot = work.first_slot; slot < work.last_slot; slot += kChunkKeys) {
    load_keys(pool, ChunkAddresses(shape, pool, tile, slot, work.last_slot), shape.head_dim, work.chunk);
    for (int64_t row = 0; row < tile.num_rows; ++row) {
      const uint32_t visible = work.views[row].visible(slot);
      if (visible == 0) continue;
      for (int64_t head = 0; head < group; ++head) {
        const int q = pending.count++;
        pending.queries[q] = tile.queries + row * row_stride + head * shape.head_dim;
        pending.to[q] = work.scores + (row * group + head) * kScoreStride + num_scored[row];
        pending.visible[q] = visible;
        if (pending.count == kMaxQueriesAtOnce) pending.flush(work.chunk, shape.head_dim);
      }
      num_scored[row] += __builtin_popcount(visible);
    }
    pending.flush(work.chunk, shape.head_dim);
  }
}

// cap * tanh(score / cap), as cap * (1 - 2 / (exp(2 score / cap) + 1)).
inline Floats cap_scores(Floats scores, float cap) {
  const Floats power = exp(mul(scores, broadcast(2.0f / cap)));
  const Floats tanh = sub(broadcast(1.0f), div(broadcast(2.0f), add(power, broadcast(1.0f))));
  return mul(broadcast(cap), tanh);
}

// Turns num_keys scores into weights exp(score - maximum), in place; key n adds to partial sum n % 16.
inline void soften(float* scores, int64_t num_keys, float softcap, float* maximum_out, float* sum_out) {
  for (int64_t key = num_keys; key < num_keys + kLanes; ++key) scores[key] = -__builtin_inff();
  Floats maximum = broadcast(-__builtin_inff());
  for (int64_t key = 0; key < num_keys; key += kLanes) {
    Floats value = load(scores + key);
    if (softcap != 0) {
      value = cap_scores(value, softcap);
      store_first(scores + key, value, num_keys - key < kLanes ? num_keys - key : kLanes);
      value = load(scores + key);
    }
    maximum = max(maximum, value);
  }
  *maximum_out = max_lane(maximum);
  Floats sum = zeros();
  for (int64_t key = 0; key < num_keys; key += kLanes) {
    const Floats weight = exp(sub(load(scores + key), broadcast(*maximum_out)));
    store(scores + key, weight);
    sum = add(sum, weight);
  }
  *sum_out = sum_lanes(sum);
}

// Adds a chunk's visible values, kCount vectors of 16 columns, to a query's output, in the order of the keys.
template <int kCount>
inline void add_values(const float* weights, uint32_t visible, const float* values, int64_t width, float* out) {
  Floats sums[kCount];
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) sums[v] = load(out + v * kLanes);
  for (; visible != 0; visible &= visible - 1) {
    const float* const value = values + __builtin_ctz(visible) * width;
    const Floats weight = broadcast(*weights++);
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) sums[v] = fma(weight, load(value + v * kLanes), sums[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) store(out + v * kLanes, sums[v]);
}

inline void add_values(const float* weights, uint32_t visible, const float* values, int64_t width, float* out) {
  using Add = void (*)(const float*, uint32_t, const float*, int64_t, float*);
  static constexpr Add kTable[] = {add_values<1>, add_values<2>, add_values<3>, add_values<4>,
                                   add_values<5>, add_values<6>, add_values<7>, add_values<8>};
  for (int64_t column = 0; column < width; column += kMaxVectorsAtOnce * kLanes) {
    const int64_t vectors = (width - column) / kLanes;
    kTable[(vectors < kMaxVectorsAtOnce ? vectors : kMaxVectorsAtOnce) - 1](weights, visible, values + column, width,
                                                                            out + column);
  }
}

inline void sum_values(const AttentionShape& shape, const KvPool& pool, const AttentionTile& tile, SplitWork& work,
                       float* partials) {
  const int64_t group = shape.group_size(), stride = partial_floats(shape.head_dim);
  const int64_t width = padded_head_dim(shape.head_dim);
  int64_t num_added[kMaxTileRows] = {};
  for (int64_t slot = work.first_slot; slot < work.last_slot; slot += kChunkKeys) {
    load_values(pool, ChunkAddresses(shape, pool, tile, slot, work.last_slot), shape.head_dim, work.chunk);
    for (int64_t row = 0; row < tile.num_rows; ++row) {
      const uint32_t visible = work.views[row].visible(slot);
      if (visible == 0) continue;
      for (int64_t query = row * group; query < (row + 1) * group; ++query) {
        const float* const weights = work.scores + query * kScoreStride + num_added[row];
        add_values(weights, visible, work.chunk, width, partials + query * stride);
      }
      num_added[row] += __builtin_popcount(visible);
    }
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
