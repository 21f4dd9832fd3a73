// The kernels of `paged_attention` for one instruction set, put together from rows and splits. Written with simd.h
// only.
#pragma once

#include "attention_rows.h"
#include "attention_split.h"

namespace pilotfish::PILOTFISH_SIMD {

// The two numbers behind a partial's weighted sum of values.
struct Softmax {
  float maximum;
  float sum;  // 0: no key yet
};

inline Softmax* softmax_of(float* partial, int64_t head_dim) {
  return reinterpret_cast<Softmax*>(partial + padded_head_dim(head_dim));
}
inline const Softmax& softmax_of(const float* partial, int64_t head_dim) {
  return *reinterpret_cast<const Softmax*>(partial + padded_head_dim(head_dim));
}

inline void attend(const AttentionShape& shape, const KvPool& pool, const AttentionTile& tile, int64_t split,
                   float* scratch, float* partials) {
  const int64_t group = shape.group_size(), stride = partial_floats(shape.head_dim);
  SplitWork work;
  work.scores = scratch;
  work.chunk = scratch + tile.num_rows * group * kScoreStride;
  work.first_slot = INT64_MAX;
  work.last_slot = 0;
  for (int64_t row = 0; row < tile.num_rows; ++row) {
    const SplitView view = work.views[row] = split_view(tile.views[row], split);
    if (view.num_keys == 0) continue;
    work.first_slot = view.begin() < work.first_slot ? view.begin() : work.first_slot;
    work.last_slot = view.end() > work.last_slot ? view.end() : work.last_slot;
  }
  score_split(shape, pool, tile, work);
  for (int64_t query = 0; query < tile.num_rows * group; ++query) {
    float* const partial = partials + query * stride;
    Softmax* const softmax = softmax_of(partial, shape.head_dim);
    for (int64_t d = 0; d < padded_head_dim(shape.head_dim); ++d) partial[d] = 0.0f;
    float* const scores = work.scores + query * kScoreStride;
    const int64_t num_keys = work.views[query / group].num_keys;
    if (shape.softcap != 0) cap_scores(scores, num_keys, shape.softcap);
    if (tile.slopes != nullptr) {
      const int64_t nearest = tile.views[query / group].num_keys() - 1;  // the row's own key
      add_distances(scores, num_keys, split * kSplitKeys - nearest, tile.slopes[query % group]);
    }
    if (tile.key_biases != nullptr) {
      const float* const first = tile.key_biases + split * kSplitKeys * shape.num_heads;
      add_biases(scores, num_keys, first + query % group, shape.num_heads);
    }
    soften(scores, num_keys, &softmax->maximum, &softmax->sum);
  }
  sum_values(shape, pool, tile, work, partials);
}

// What merging two partials of up to 16 queries multiplies their weighted sums with; the first ones' softmax becomes
// that of both.
struct MergeFactors {
  alignas(64) float keep[kLanes];
  alignas(64) float take[kLanes];
};

inline MergeFactors merge_softmax(int64_t count, int64_t head_dim, float* running, const float* later) {
  alignas(64) float maxima[2][kLanes] = {}, sums[2][kLanes] = {};
  for (int64_t query = 0; query < count; ++query) {
    const Softmax& total = *softmax_of(running + query * partial_floats(head_dim), head_dim);
    const Softmax& part = softmax_of(later + query * partial_floats(head_dim), head_dim);
    // An empty part changes nothing: its maximum, -inf, would make a difference of two infinities.
    maxima[0][query] = total.maximum;
    maxima[1][query] = part.sum != 0 ? part.maximum : total.maximum;
    sums[0][query] = total.sum;
    sums[1][query] = part.sum;
  }
  const Floats maximum = max(load(maxima[0]), load(maxima[1]));
  const Floats keep = exp(sub(load(maxima[0]), maximum)), take = exp(sub(load(maxima[1]), maximum));
  store(maxima[0], maximum);
  store(sums[0], add(mul(load(sums[0]), keep), mul(load(sums[1]), take)));
  MergeFactors factors;
  store(factors.keep, keep);
  store(factors.take, take);
  for (int64_t query = 0; query < count; ++query) {
    *softmax_of(running + query * partial_floats(head_dim), head_dim) = {maxima[0][query], sums[0][query]};
  }
  return factors;
}

inline void merge(int64_t num_queries, int64_t head_dim, float* running, const float* later) {
  for (int64_t first = 0; first < num_queries; first += kLanes) {
    const int64_t count = num_queries - first < kLanes ? num_queries - first : kLanes;
    const MergeFactors factors = merge_softmax(count, head_dim, running, later);
    for (int64_t query = 0; query < count; ++query) {
      const Floats keep = broadcast(factors.keep[query]), take = broadcast(factors.take[query]);
      for (int64_t d = 0; d < padded_head_dim(head_dim); d += kLanes) {
        store(running + d, add(mul(load(running + d), keep), mul(load(later + d), take)));
      }
      running += partial_floats(head_dim);
      later += partial_floats(head_dim);
    }
  }
}

// What a query's sink, a score without a value, adds to the sum of weights.
inline float sink_weight(const AttentionTile& tile, int64_t head, float maximum) {
  return tile.sinks == nullptr ? 0.0f : max_lane(exp(broadcast(tile.sinks[head] - maximum)));
}

inline void finish(const AttentionShape& shape, const AttentionTile& tile, const float* running) {
  for (int64_t row = 0; row < tile.num_rows; ++row) {
    float* out = tile.out + row * shape.num_heads * shape.head_dim;
    for (int64_t head = 0; head < shape.group_size(); ++head, out += shape.head_dim) {
      const Softmax& softmax = softmax_of(running, shape.head_dim);
      const float inverse = 1.0f / (softmax.sum + sink_weight(tile, head, softmax.maximum));
      for (int64_t d = 0; d < shape.head_dim; ++d) out[d] = running[d] * inverse;
      running += partial_floats(shape.head_dim);
    }
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
