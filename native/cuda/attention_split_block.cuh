// A thread block's work on splits of 128 keys. A warp loads and scores a chunk of 32 keys; the softmax is the block's;
// then a warp has some of the columns, of all keys. The next split's keys and values load as soon as there is room.
#pragma once

#include "attention_partials.cuh"
#include "attention_place.cuh"
#include "attention_split_layout.cuh"

namespace pilotfish::cuda {

template <CacheType kType, int kDim>
class SplitBlock {
  using Shared = SplitLayout<kType, kDim>;

 public:
  __device__ SplitBlock(const PagedAttention& a, const Tile& tile, const FreshRows& rows, const KeyRange& seen,
                        int num_splits, uint8_t* shared)
      : a_(a),
        tile_(tile),
        rows_(rows),
        seen_(seen),
        partials_{reinterpret_cast<Partial*>(a.partials), num_splits},
        shared_(shared),
        at_(shared_address(shared)),
        warp_(threadIdx.x / kWarpSize),
        lane_(threadIdx.x % kWarpSize) {}

  /// Before score().
  __device__ void describe_queries() {
    describe(0);
    if (has_half(1)) describe(1);
  }

  /// Whether this warp's chunk of the cache has nothing that a kernel before this one in the pass writes.
  __device__ bool is_there(int split) const {
    return rows_.are_made_here() || first_key(split, warp_) + kChunkKeys <= tile_.context;
  }

  /// Finds this warp's chunk of the split that is loaded next; there may be none.
  __device__ void find(int split) {
    next_.find(a_, tile_, seen_, first_key(split, warp_), [&](int key) { return rows_.row_of_key(key) >= 0; });
  }

  /// Sets out to load this warp's chunk of what was found: keys, then, with nobody at the old ones any more, values.
  __device__ void load_keys() {
    next_.load(a_, a_.key_cache, tile_.kv_head, at_ + Shared::kKeys + warp_ * kChunkKeys * Shared::kRowBytes);
    commit_copies();
    if constexpr (kHasScales<kType>) {
      scales_.load(a_, next_, tile_.kv_head);
      is_fresh_ = next_.block == kFreshKey;
    }
  }
  /// Values that nobody sees are zero: all of a split are weighed.
  __device__ void load_values() const {
    const uint32_t target = at_ + Shared::kValues + warp_ * kChunkKeys * Shared::kRowBytes;
    next_.load(a_, a_.value_cache, tile_.kv_head, target);
    commit_copies();
    if (next_.exists) return;
#pragma unroll 1
    for (int i = lane_ * 16; i < kChunkKeys * Shared::kRowBytes; i += kWarpSize * 16) {
      store_shared(target + i, float4{});
    }
  }

  /// Scales that load_keys() set out to load.
  __device__ void store_scales() const {
    if (kHasScales<kType> && !is_fresh_) {
      scales_.template store<kType>(Shared::scales(shared_, false), Shared::scales(shared_, true));
    }
  }

  /// Once keys and queries have landed for all warps: scores of this warp's chunk, and their maxima for the others.
  template <class Queries>
  __device__ void score(int split, const Queries& queries, const float4& query_sums) {
    float maxima[2] = {-INFINITY, -INFINITY};
    if (has_keys(split, warp_)) {
      score_chunk<kType, kDim>(queries, query_sums, at_ + Shared::kKeys + warp_ * kChunkKeys * Shared::kRowBytes,
                               Shared::scales(shared_, false) + warp_ * kChunkKeys, scores_);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!has_half(half)) continue;
        ScoreRule(a_.shape).cap(scores_[half]);
        hide(scores_[half], queries_[half].keys, first_key(split, warp_));
        maxima[half] = quad_max(largest(scores_[half]));
      }
    }
    if (lane_ % 4 == 0) {
      maximum_of(warp_, lane_ / 4) = maxima[0];
      maximum_of(warp_, lane_ / 4 + 8) = maxima[1];
    }
  }

  /// Once the maxima are there: this warp's chunk of the weights, and their sums.
  __device__ void soften_chunk(int split) {
    const bool has_scores = has_keys(split, warp_);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!has_half(half)) continue;
      const int query = lane_ / 4 + half * 8;
      float most = -INFINITY;
#pragma unroll
      for (int chunk = 0; chunk < kSplitChunks; ++chunk) most = fmaxf(most, maximum_of(chunk, query));
      softmax_[half].maximum = most * ScoreRule(a_.shape).factor;
      float sum = 0;
      uint32_t pairs[kChunkKeys / 8] = {};
      if (has_scores) {
        sum = soften<kType>(scores_[half], ScoreRule(a_.shape).factor, softmax_[half].maximum,
                            Shared::scales(shared_, true) + warp_ * kChunkKeys, pairs);
      }
      const uint32_t target = at_ + query * Shared::kWeightBytes + warp_ * kChunkKeys * 2 + lane_ % 4 * 4;
#pragma unroll
      for (int i = 0; i < kChunkKeys / 8; ++i) store_word(target + i * 16, pairs[i]);
      sum_of(warp_, query) = sum;
    }
  }

  /// Once weights and values are there: this warp's columns.
  __device__ void weigh_values(int split) {
    float4 offsets = {};
#pragma unroll
    for (auto& slab : sums_) {
#pragma unroll
      for (float4& sum : slab) sum = float4{};
    }
    if (warp_ < kSlabs) {
      const uint32_t weights_at = at_ + lane_rows<Shared::kWeightBytes>();
#pragma unroll
      for (int step = 0; step < kSplitKeys / 16; ++step) {
        Weights weights;
        load_matrices(weights, weights_at + step * 32);
        add_weights<kType>(weights, offsets);
#pragma unroll
        for (int i = 0; i < kWarpSlabs; ++i) {
          weigh<kType, kDim>(weights, at_ + Shared::kValues + step * 16 * Shared::kRowBytes, slab(i), sums_[i]);
        }
      }
    }
#pragma unroll
    for (auto& slab : sums_) {
#pragma unroll
      for (float4& sum : slab) take_offset<kType>(offsets, sum);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!has_half(half)) continue;
      const int query = lane_ / 4 + half * 8;
      float sum = sum_of(0, query);
#pragma unroll
      for (int chunk = 1; chunk < kSplitChunks; ++chunk) sum = __fadd_rn(sum, sum_of(chunk, query));
      softmax_[half].sum = quad_sum(sum);
    }
  }

  /// The result of a split that is not the last one, where it is not before all that a query sees.
  __device__ void send(int split) const {
    for_each_result([&](int half, int slab, const float4(&sums)[4]) {
      const Query& query = queries_[half];
      if (split < query.first_split) return;
      constexpr int kSlabColumns = 32, kPartSlabs = Partial::kColumns / kSlabColumns;
      Partial& part = partials_.parts(query.index, split)[slab / kPartSlabs];
#pragma unroll
      for (int piece = 0; piece < kPieces<kType>; ++piece) {
        float* const target = &part.sums[0].x + piece_column<kType>(slab % kPartSlabs, piece);
        store_relaxed(reinterpret_cast<Piece<kType>*>(target), piece_of<kType>(sums, half, piece));
      }
      if (slab % kPartSlabs == 0 && lane_ % 4 == 0) {
        store_relaxed(&part.softmax, make_float4(softmax_[half].maximum, softmax_[half].sum, 0, 0));
      }
    });
  }

  /// Adds the results of all splits, the last one's its own, and writes the output. Nobody is at keys or maxima any
  /// more.
  __device__ void finish() const {
    auto* const results = reinterpret_cast<float*>(shared_ + Shared::kKeys);
    auto* const factors = reinterpret_cast<typename QueryTotal<kDim>::Factors*>(results + kTileQueries * kDim);
    auto* const own = reinterpret_cast<Own*>(shared_ + Shared::kMaxima);
    if (threadIdx.x < kTileQueries) own[threadIdx.x].index = -1;
    __syncwarp();  // the first slab is the same warp's
    for_each_result([&](int half, int slab, const float4(&sums)[4]) {
      const int query = lane_ / 4 + half * 8;
#pragma unroll
      for (int piece = 0; piece < kPieces<kType>; ++piece) {
        float* const target = results + query * kDim + piece_column<kType>(slab, piece);
        *reinterpret_cast<Piece<kType>*>(target) = piece_of<kType>(sums, half, piece);
      }
      if (slab == 0 && lane_ % 4 == 0) own[query] = {softmax_[half], queries_[half].index, queries_[half].first_split};
    });
    __syncthreads();
    constexpr int kParts = Partials<kDim>::kParts;
    for (int i = warp_; i < num_queries() * kParts; i += kAttentionWarps) {
      const int query = i / kParts, part = i % kParts, column = part * Partial::kColumns + lane_ * 2;
      const Own last = own[query];
      if (last.index < 0) continue;
      QueryTotal<kDim> total;
      total.add_splits(partials_.parts(last.index, last.first_split) + part, column < kDim,
                       last_split() - last.first_split, factors[warp_]);
      if (column >= a_.shape.head_dim) continue;
      total.add(last.softmax, *reinterpret_cast<const float2*>(results + query * kDim + column));
      write_result(a_, last.index, column, scaled(total.values, kValueUnit<kType> / total.softmax.sum));
    }
  }

 private:
  /// A query of a lane.
  struct Query {
    KeyRange keys = {1, 0};
    int index = -1;       // in the pass; -1: none
    int first_split = 0;  // of all that it sees, whichever tile has it
  };
  /// What the last split has of a query.
  struct Own {
    Softmax softmax;
    int index;
    int first_split;
  };
  static constexpr int kSlabs = kDim / 32;
  static constexpr int kWarpSlabs = (kSlabs + kAttentionWarps - 1) / kAttentionWarps;

  __device__ void describe(int half) {
    const int number = lane_ / 4 + half * 8;
    if (!tile_.has(number)) return;
    const KeyRange all = keys_of_row(a_, tile_.context, tile_.first_row + tile_.row_of(number));
    queries_[half] = {{max(all.first, tile_.part.first), min(all.last, tile_.part.last)},
                      static_cast<int>(tile_.index(a_, number)),
                      all.first / kSplitKeys};
  }
  __device__ int last_split() const { return seen_.last / kSplitKeys; }
  __device__ int num_queries() const { return tile_.num_queries(); }
  __device__ bool has_half(int half) const { return half == 0 || num_queries() > 8; }
  __device__ int slab(int i) const { return warp_ + i * kAttentionWarps; }
  __device__ int first_key(int split, int chunk) const { return split * kSplitKeys + chunk * kChunkKeys; }
  __device__ bool has_keys(int split, int chunk) const {
    return first_key(split, chunk) <= seen_.last && first_key(split, chunk) + kChunkKeys > seen_.first;
  }
  __device__ float& maximum_of(int chunk, int query) const {
    return reinterpret_cast<float*>(shared_ + Shared::kMaxima)[chunk * kTileQueries + query];
  }
  /// This lane's part.
  __device__ float& sum_of(int chunk, int query) const {
    return reinterpret_cast<float*>(shared_ + Shared::kSums)[(chunk * kTileQueries + query) * 4 + lane_ % 4];
  }

  /// Calls work(half, slab, sums) for what this lane has of the result.
  template <class Work>
  __device__ __forceinline__ void for_each_result(const Work& work) const {
    if (warp_ >= kSlabs) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!has_half(half) || queries_[half].index < 0) continue;
#pragma unroll
      for (int i = 0; i < kWarpSlabs; ++i) work(half, slab(i), sums_[i]);
    }
  }

  const PagedAttention& a_;
  const Tile& tile_;
  const FreshRows& rows_;
  const KeyRange seen_;
  const Partials<kDim> partials_;
  uint8_t* shared_;
  uint32_t at_;
  int warp_;
  int lane_;
  Query queries_[2];
  ChunkPlace<kType, kDim> next_;  // of this warp's chunk of the split that is loaded next
  LaneScales scales_;
  bool is_fresh_ = false;
  Scores scores_;
  Softmax softmax_[2];
  float4 sums_[kWarpSlabs][4];
};

}  // namespace pilotfish::cuda
