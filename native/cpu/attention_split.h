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
  ChunkWalk walk(shape, pool, tile, pool.keys, work.first_slot, work.last_slot);
  ChunkAddresses chunk;
  for (int64_t slot; walk.next(&chunk, &slot);) {
    for_cache(pool.type, [&]<CacheType kType>() { load_keys<kType>(pool.keys, chunk, shape.head_dim, work.chunk); });
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

// The same of num_keys scores, in place; what is behind them may change too.
inline void cap_scores(float* scores, int64_t num_keys, float cap) {
  for (int64_t key = 0; key < num_keys; key += kLanes) store(scores + key, cap_scores(load(scores + key), cap));
}

// ALiBi: adds slope * distance to num_keys scores, of which the first is `first_distance` positions behind its query, a
// negative number, and each later one a position nearer. A row sees every position up to its own, or to its window.
inline void add_distances(float* scores, int64_t num_keys, int64_t first_distance, float slope) {
  alignas(64) float distances[kLanes];
  for (int64_t key = 0; key < num_keys; key += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) distances[l] = static_cast<float>(first_distance + key + l);
    store(scores + key, fma(broadcast(slope), load(distances), load(scores + key)));
  }
}

// Adds to num_keys scores a number each, `stride` apart.
inline void add_biases(float* scores, int64_t num_keys, const float* biases, int64_t stride) {
  for (int64_t key = 0; key < num_keys; ++key) scores[key] += biases[key * stride];
}

// Turns num_keys scores into weights exp(score - maximum), in place; key n adds to partial sum n % 16.
inline void soften(float* scores, int64_t num_keys, float* maximum_out, float* sum_out) {
  for (int64_t key = num_keys; key < num_keys + kLanes; ++key) scores[key] = -__builtin_inff();
  Floats maximum = broadcast(-__builtin_inff());
  for (int64_t key = 0; key < num_keys; key += kLanes) maximum = max(maximum, load(scores + key));
  *maximum_out = max_lane(maximum);
  Floats sum = zeros();
  for (int64_t key = 0; key < num_keys; key += kLanes) {
    const Floats weight = exp(sub(load(scores + key), broadcast(*maximum_out)));
    store(scores + key, weight);
    sum = add(sum, weight);
  }
  *sum_out = sum_lanes(sum);
}

// Where a query's weights for a chunk and its output lie; the next query's follow at fixed distances.
struct QueryValues {
  const float* weights;  // [num_queries][kScoreStride]
  float* out;            // [num_queries][stride]
  int64_t stride;
};

// Adds a chunk's visible values, kVectors vectors of 16 columns, to the output of kQueries queries, in the order of the
// keys.
template <int kVectors, int kQueries>
inline void add_vectors(const QueryValues& queries, uint32_t visible, const float* values, int64_t width) {
  Floats sums[kQueries][kVectors];
#pragma GCC unroll 2
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[q][v] = load(queries.out + q * queries.stride + v * kLanes);
  }
  for (const float* weight = queries.weights; visible != 0; visible &= visible - 1, ++weight) {
    const float* const value = values + __builtin_ctz(visible) * width;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Floats column = load(value + v * kLanes);
#pragma GCC unroll 2
      for (int q = 0; q < kQueries; ++q) sums[q][v] = fma(broadcast(weight[q * kScoreStride]), column, sums[q][v]);
    }
  }
#pragma GCC unroll 2
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(queries.out + q * queries.stride + v * kLanes, sums[q][v]);
  }
}

template <int kQueries>
inline void add_values(QueryValues queries, uint32_t visible, const float* values, int64_t width) {
  using Add = void (*)(const QueryValues&, uint32_t, const float*, int64_t);
  static constexpr Add kTable[] = {add_vectors<1, kQueries>, add_vectors<2, kQueries>, add_vectors<3, kQueries>,
                                   add_vectors<4, kQueries>, add_vectors<5, kQueries>, add_vectors<6, kQueries>,
                                   add_vectors<7, kQueries>, add_vectors<8, kQueries>};
  for (int64_t column = 0; column < width; column += kMaxVectorsAtOnce * kLanes) {
    const int64_t vectors = (width - column) / kLanes;
    kTable[(vectors < kMaxVectorsAtOnce ? vectors : kMaxVectorsAtOnce) - 1](queries, visible, values + column, width);
    queries.out += kMaxVectorsAtOnce * kLanes;
  }
}

inline void sum_values(const AttentionShape& shape, const KvPool& pool, const AttentionTile& tile, SplitWork& work,
                       float* partials) {
  const int64_t group = shape.group_size(), stride = partial_floats(shape.head_dim);
  const int64_t width = padded_head_dim(shape.head_dim);
  int64_t num_added[kMaxTileRows] = {};
  ChunkWalk walk(shape, pool, tile, pool.values, work.first_slot, work.last_slot);
  ChunkAddresses chunk;
  for (int64_t slot; walk.next(&chunk, &slot);) {
    for_cache(pool.type,
              [&]<CacheType kType>() { load_values<kType>(pool.values, chunk, shape.head_dim, work.chunk); });
    for (int64_t row = 0; row < tile.num_rows; ++row) {
      const uint32_t visible = work.views[row].visible(slot);
      if (visible == 0) continue;
      const int64_t first = row * group;
      QueryValues queries{work.scores + first * kScoreStride + num_added[row], partials + first * stride, stride};
      int64_t head = 0;
      for (; head + 2 <= group; head += 2) {
        add_values<2>(queries, visible, work.chunk, width);
        queries.weights += 2 * kScoreStride;
        queries.out += 2 * stride;
      }
      if (head < group) add_values<1>(queries, visible, work.chunk, width);
      num_added[row] += __builtin_popcount(visible);
    }
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
