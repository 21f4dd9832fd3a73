// A warp's 16 of the 64 queries that a thread block of attention of many rows has, on their way through the keys.
#pragma once

#include "attention_place.cuh"

namespace pilotfish::cuda {

inline constexpr int kBlockQueries = kAttentionWarps * kTileQueries;
static_assert(kAttentionWarps == kSplitChunks, "a warp loads a chunk");

/// What registers leave room for.
template <int kDim>
inline constexpr int kBlocksOfSm = kDim > 128 ? 1 : 2;

/// Shared memory: queries, then keys and values of a split, and their scales where there are some.
template <CacheType kType, int kDim>
struct PrefillLayout {
  static constexpr int kRowBytes = kCacheRowBytes<kType, kDim>;
  static constexpr int kKeys = kBlockQueries * kQueryBytes<kDim>;
  static constexpr int kValues = kKeys + kSplitKeys * kRowBytes;
  static constexpr int kScales = kValues + kSplitKeys * kRowBytes;
  static constexpr int kBytes = kScales + (kHasScales<kType> ? 2 * kSplitKeys * 4 : 0);
};

/// A warp's queries on their way through the splits of their keys.
template <CacheType kType, int kDim>
class PrefillWarp {
  using Shared = PrefillLayout<kType, kDim>;
  /// Wide heads leave no registers for the queries.
  using Queries = std::conditional_t<(kDim > 128), SharedQueries<kDim>, HeldQueries<kDim>>;

 public:
  __device__ PrefillWarp(const PagedAttention& a, const Tile& tile, const KeyRange& seen, uint8_t* shared)
      : a_(a),
        tile_(tile),
        rule_(a.shape),
        block_seen_(seen),
        shared_(shared),
        at_(shared_address(shared)),
        warp_(threadIdx.x / kWarpSize),
        lane_(threadIdx.x % kWarpSize),
        seen_(tile.all_keys(a, first_query(), kTileQueries)),
        rows_{tile.keys(a, first_query() + lane_ / 4), tile.keys(a, first_query() + lane_ / 4 + 8)} {
    load_queries<kDim, kTileQueries>(a, tile, first_query(), queries_at());
  }

  /// Finds this warp's chunk of the split that is loaded next; there may be none.
  __device__ void find(int split) {
    next_.find(a_, tile_, block_seen_, split * kSplitKeys + warp_ * kChunkKeys, [](int) { return false; });
  }
  __device__ void load_keys() {
    load(a_.key_cache, Shared::kKeys);
    scales_.load(a_, next_, tile_.kv_head);
  }
  __device__ void load_values() const { load(a_.value_cache, Shared::kValues); }
  __device__ void store_scales() const {
    if constexpr (!kHasScales<kType>) return;
    scales_.template store<kType>(scales(false), scales(true));
  }

  /// Once the queries have landed.
  __device__ void begin() {
    queries_.read(queries_at());
    query_sums_ = sums_of_queries<kType, kDim>(queries_);
  }

  /// Keys, or values, that were loaded have landed, for all warps.
  __device__ void wait() const {
    wait_for_copies<1>();
    __syncthreads();
  }

  __device__ void score(int split) {
#pragma unroll
    for (int chunk = 0; chunk < kSplitChunks; ++chunk) {
      if (!has_keys(split, chunk)) continue;
      score_chunk<kType, kDim>(queries_, query_sums_, at_ + Shared::kKeys + chunk * kChunkKeys * Shared::kRowBytes,
                               scales(false) + chunk * kChunkKeys, scores_[chunk]);
    }
  }

  __device__ void soften_split(int split) {
    const int first_key = split * kSplitKeys, last_key = first_key + kSplitKeys - 1;
    const bool sees_all = __all_sync(
        ~0u, max(rows_[0].first, rows_[1].first) <= first_key && min(rows_[0].last, rows_[1].last) >= last_key);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Softmax part;
      float most = -INFINITY;
#pragma unroll
      for (int chunk = 0; chunk < kSplitChunks; ++chunk) {
        if (!has_keys(split, chunk)) continue;
        float (&scores)[kChunkKeys / 4] = scores_[chunk][half];
        rule_.cap(scores);
        if (!sees_all) hide(scores, rows_[half], first_key + chunk * kChunkKeys);
        most = fmaxf(most, largest(scores));
      }
      part.maximum = quad_max(most) * rule_.factor;
#pragma unroll
      for (int chunk = 0; chunk < kSplitChunks; ++chunk) {
        uint32_t pairs[kChunkKeys / 8] = {};
        if (has_keys(split, chunk)) {
          part.sum = __fadd_rn(part.sum, soften<kType>(scores_[chunk][half], rule_.factor, part.maximum,
                                                       scales(true) + chunk * kChunkKeys, pairs));
        }
#pragma unroll
        for (int i = 0; i < kChunkKeys / 8; ++i) weights_[chunk * 2 + i / 2][i % 2 * 2 + half] = pairs[i];
      }
      part.sum = quad_sum(part.sum);
      factors_[half] = join(softmax_[half], part);
    }
  }

  __device__ void weigh_values(int split) {
    float4 offsets = {};
#pragma unroll
    for (int step = 0; step < kSplitKeys / 16; ++step) add_weights<kType>(weights_[step], offsets);
#pragma unroll
    for (int slab = 0; slab < kDim / 32; ++slab) {
      float4 sums[4] = {};
#pragma unroll
      for (int step = 0; step < kSplitKeys / 16; ++step) {
        if (!has_keys(split, step / 2)) continue;
        weigh<kType, kDim>(weights_[step], at_ + Shared::kValues + step * 16 * Shared::kRowBytes, slab, sums);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        take_offset<kType>(offsets, sums[i]);
        join_totals(totals_[slab][i], sums[i]);
      }
    }
  }

  __device__ void write() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query() + lane_ / 4 + half * 8;
      if (!tile_.has(query)) continue;
      const size_t index = tile_.index(a_, query);
      const float inverse = kValueUnit<kType> / softmax_[half].sum;
#pragma unroll
      for (int slab = 0; slab < kDim / 32; ++slab) {
#pragma unroll
        for (int piece = 0; piece < kPieces<kType>; ++piece) {
          const int column = piece_column<kType>(slab, piece);
          if (column >= a_.shape.head_dim) continue;
          write_result(a_, index, column, scaled(piece_of<kType>(totals_[slab], half, piece), inverse));
        }
      }
    }
  }

 private:
  __device__ int first_query() const { return warp_ * kTileQueries; }
  __device__ uint32_t queries_at() const { return at_ + first_query() * kQueryBytes<kDim>; }
  __device__ float* scales(bool of_values) const {
    return reinterpret_cast<float*>(shared_ + Shared::kScales) + (of_values ? kSplitKeys : 0);
  }
  /// Whether any of the warp's queries sees any of a chunk; the same in all lanes.
  __device__ bool has_keys(int split, int chunk) const {
    const int first_key = split * kSplitKeys + chunk * kChunkKeys;
    return first_key <= seen_.last && first_key + kChunkKeys > seen_.first;
  }
  __device__ void join_totals(float4& total, const float4& part) const {
    total = make_float4(joined(factors_[0], total.x, part.x), joined(factors_[0], total.y, part.y),
                        joined(factors_[1], total.z, part.z), joined(factors_[1], total.w, part.w));
  }
  __device__ void load(const void* pool, int place) const {
    next_.load(a_, pool, tile_.kv_head, at_ + place + warp_ * kChunkKeys * Shared::kRowBytes);
    commit_copies();
  }

  const PagedAttention& a_;
  const Tile& tile_;
  const ScoreRule rule_;
  const KeyRange block_seen_;
  uint8_t* shared_;
  uint32_t at_;
  int warp_;
  int lane_;
  const KeyRange seen_;
  const KeyRange rows_[2];        // that the lane's queries see
  ChunkPlace<kType, kDim> next_;  // of this warp's chunk of the split that is loaded next
  LaneScales scales_;
  Queries queries_;
  float4 query_sums_;
  Scores scores_[kSplitChunks];
  Weights weights_[kSplitKeys / 16];
  Join factors_[2];
  Softmax softmax_[2];
  float4 totals_[kDim / 32][4] = {};
};

}  // namespace pilotfish::cuda
