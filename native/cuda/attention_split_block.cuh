// A thread block's work on splits of 128 keys. A warp loads and scores a chunk of 32 keys; the softmax is the block's;
// then a warp has some of the columns, of all keys. The next split's keys and values load as soon as there is room.
#pragma once

#include "attention_fresh.cuh"
#include "attention_partials.cuh"
#include "attention_tile.cuh"

namespace pilotfish::cuda {

/// Shared memory: the tile's queries, whose room the weights take once they are in registers; keys and values of a
/// split, which make room for the last one's result [16 queries][kDim] f32; maxima and sums of the chunks; scales.
template <CacheType kType, int kDim>
struct SplitLayout {
  static constexpr int kWeightBytes = kSplitKeys * 2 + 16;  // of a query
  static constexpr int kKeys = kTileQueries * (kQueryBytes<kDim> > kWeightBytes ? kQueryBytes<kDim> : kWeightBytes);
  static constexpr int kRowBytes = kCacheRowBytes<kType, kDim>;
  static constexpr int kValues = kKeys + kSplitKeys * kRowBytes;
  static constexpr int kMaxima = kValues + kSplitKeys * kRowBytes;             // [chunk][query]
  static constexpr int kSums = kMaxima + kSplitChunks * kTileQueries * 4;      // [chunk][query][lane of four]
  static constexpr int kScales = kSums + kSplitChunks * kTileQueries * 4 * 4;  // [key], [value]
  static constexpr int kBytes = kScales + (kHasScales<kType> ? 2 * kSplitKeys * 4 : 0);
  static_assert(kTileQueries * kDim * 4 <= 2 * kSplitKeys * kRowBytes, "a result fits where keys and values were");
  static_assert(kAttentionWarps == kSplitChunks, "a chunk a warp");

  __device__ static float* scales(uint8_t* shared, bool of_values) {
    return reinterpret_cast<float*>(shared + kScales) + (of_values ? kSplitKeys : 0);
  }
};

template <CacheType kType, int kDim>
class SplitBlock {
  using Shared = SplitLayout<kType, kDim>;

 public:
  __device__ SplitBlock(const PagedAttention& a, const Tiling& tiling, const Tile& tile, const FreshRows& rows,
                        const KeyRange& seen, int num_splits, uint8_t* shared)
      : a_(a),
        tiling_(tiling),
        tile_(tile),
        rows_(rows),
        seen_(seen),
        partials_{a, num_splits},
        shared_(shared),
        at_(shared_address(shared)),
        warp_(threadIdx.x / kWarpSize),
        lane_(threadIdx.x % kWarpSize) {}

  /// Whether this warp's chunk of the cache has nothing that a kernel before this one in the pass writes.
  __device__ bool is_there(int split) const {
    return rows_.are_made_here() || first_key(split, warp_) + kChunkKeys <= tile_.sequence.context;
  }

  /// Finds this warp's chunk of the split that is loaded next; there may be none.
  __device__ void find(int split) {
    next_split_ = split;
    next_cell_ = kNoKey;
    if (!has_keys(split, warp_)) return;
    next_cell_ = lane_cell(a_, tile_, seen_, first_key(split, warp_));
    if (next_cell_ >= 0 && rows_.row_of_key(first_key(split, warp_) + lane_) >= 0) next_cell_ = kFreshKey;
  }

  /// Has what was found brought into L2.
  __device__ void prefetch() const {
#if __CUDA_ARCH__ >= 900
    if (next_cell_ < 0 || first_key(next_split_, warp_) + lane_ >= tile_.sequence.context) return;
    const size_t offset = row_offset<kType>(a_, next_cell_, tile_.kv_head);
    const int num_bytes = a_.shape.head_dim * kElementBytes<kType>;
    prefetch_bulk(static_cast<const uint4*>(a_.key_cache) + offset, num_bytes);
    prefetch_bulk(static_cast<const uint4*>(a_.value_cache) + offset, num_bytes);
#endif
  }

  /// Sets out to load this warp's chunk of what was found: keys, then, with nobody at the old ones any more, values.
  __device__ void load_keys() {
    load(a_.key_cache, Shared::kKeys);
    if constexpr (kHasScales<kType>) {
      scales_ = LaneScales(a_, next_cell_, tile_.kv_head);
      is_fresh_ = next_cell_ == kFreshKey;
    }
  }
  __device__ void load_values() const { load(a_.value_cache, Shared::kValues); }

  /// Scales that load_keys() set out to load.
  __device__ void store_scales() const {
    if (kHasScales<kType> && !is_fresh_) {
      scales_.template store<kType>(Shared::scales(shared_, false), Shared::scales(shared_, true), threadIdx.x);
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
        hide(scores_[half], tile_.keys(a_, tiling_, lane_ / 4 + half * 8), first_key(split, warp_));
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
      if (has_scores) {
        uint32_t pairs[kChunkKeys / 8];
        sum = soften<kType>(scores_[half], ScoreRule(a_.shape).factor, softmax_[half].maximum,
                            Shared::scales(shared_, true) + warp_ * kChunkKeys, pairs);
        const uint32_t target = at_ + query * Shared::kWeightBytes + warp_ * kChunkKeys * 2 + lane_ % 4 * 4;
#pragma unroll
        for (int i = 0; i < kChunkKeys / 8; ++i) store_word(target + i * 16, pairs[i]);
      }
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
        if (!has_keys(split, step / 2)) continue;
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
    for_each_result([&](int query, int slab, int half, const float4(&sums)[4]) {
      if (split < first_split_of(query)) return;
      const size_t index = tile_.index(a_, tiling_, query);
#pragma unroll
      for (int piece = 0; piece < kPieces<kType>; ++piece) {
        const int column = piece_column<kType>(slab, piece);
        auto* const target = reinterpret_cast<Piece<kType>*>(partials_.values(index, split) + column);
        if (column < a_.shape.head_dim) store_relaxed(target, piece_of<kType>(sums, half, piece));
      }
      if (slab == 0 && lane_ % 4 == 0) {
        store_relaxed(partials_.softmax(index, split), make_float4(softmax_[half].maximum, softmax_[half].sum, 0, 0));
      }
    });
  }

  /// Adds the results of all splits, the last one's its own, and writes the output.
  __device__ void finish() const {
    auto* const results = reinterpret_cast<float*>(shared_ + Shared::kKeys);
    auto* const own = reinterpret_cast<float2*>(shared_ + Shared::kMaxima);  // maximum and sum
    __syncthreads();                                                         // nobody is at the values any more
    for_each_result([&](int query, int slab, int half, const float4(&sums)[4]) {
#pragma unroll
      for (int piece = 0; piece < kPieces<kType>; ++piece) {
        float* const target = results + query * kDim + piece_column<kType>(slab, piece);
        *reinterpret_cast<Piece<kType>*>(target) = piece_of<kType>(sums, half, piece);
      }
      if (slab == 0 && lane_ % 4 == 0) own[query] = make_float2(softmax_[half].maximum, softmax_[half].sum);
    });
    __syncthreads();
    const int num_vectors = a_.shape.head_dim / 4, last = last_split();
    for (int i = threadIdx.x; i < num_queries() * num_vectors; i += kAttentionThreads) {
      const int query = i / num_vectors, vector = i % num_vectors;
      if (!tile_.has(tiling_, query)) continue;
      const size_t index = tile_.index(a_, tiling_, query);
      ColumnTotal total;
      total.add_splits(partials_, index, vector, first_split_of(query), last);
      total.add({own[query].x, own[query].y}, *reinterpret_cast<const float4*>(results + query * kDim + vector * 4));
      write_result(a_, index, vector * 4, scaled(total.sum, kValueUnit<kType> / total.softmax.sum));
    }
    __syncthreads();
    const int first = first_split_of(0), num_sent = last - first;  // a tile's first query sees furthest back
    for (int i = threadIdx.x; i < num_queries() * num_sent; i += kAttentionThreads) {
      const int query = i / num_sent, split = first + i % num_sent;
      if (!tile_.has(tiling_, query) || split < first_split_of(query)) continue;
      Partials::clear(partials_.softmax(tile_.index(a_, tiling_, query), split));
    }
  }

 private:
  static constexpr int kSlabs = kDim / 32;
  static constexpr int kWarpSlabs = (kSlabs + kAttentionWarps - 1) / kAttentionWarps;

  __device__ int last_split() const { return seen_.last / kSplitKeys; }
  __device__ int num_queries() const { return tile_.num_rows * tiling_.heads; }
  __device__ bool has_half(int half) const { return half == 0 || num_queries() > 8; }
  __device__ int slab(int i) const { return warp_ + i * kAttentionWarps; }
  __device__ int first_split_of(int query) const { return tile_.seen(a_, tiling_, query).first / kSplitKeys; }
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

  __device__ void load(const void* pool, int place) const {
    if (has_keys(next_split_, warp_)) {
      const int offset = next_cell_ < 0 ? next_cell_ : row_offset<kType>(a_, next_cell_, tile_.kv_head);
      load_rows<kType, kDim, kChunkKeys>(a_, pool, offset, 0, at_ + place + warp_ * kChunkKeys * Shared::kRowBytes);
    }
    commit_copies();
  }

  /// Calls work(query, slab, half, sums) for what this lane has of the result.
  template <class Work>
  __device__ __forceinline__ void for_each_result(const Work& work) const {
    if (warp_ >= kSlabs) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = lane_ / 4 + half * 8;
      if (!has_half(half) || !tile_.has(tiling_, query)) continue;
#pragma unroll
      for (int i = 0; i < kWarpSlabs; ++i) work(query, slab(i), half, sums_[i]);
    }
  }

  const PagedAttention& a_;
  const Tiling& tiling_;
  const Tile& tile_;
  const FreshRows& rows_;
  const KeyRange seen_;
  const Partials partials_;
  uint8_t* shared_;
  uint32_t at_;
  int warp_;
  int lane_;
  int next_split_ = 0;
  int next_cell_ = kNoKey;  // of this lane's key in the chunk that is loaded next
  LaneScales scales_;
  bool is_fresh_ = false;
  Scores scores_;
  Softmax softmax_[2];
  float4 sums_[kWarpSlabs][4];
};

}  // namespace pilotfish::cuda
