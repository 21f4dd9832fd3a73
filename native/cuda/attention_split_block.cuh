// A thread block's work on one split of 128 keys, a chunk for each of four warps: loading, attending, and what becomes
// of its result.
#pragma once

#include "attention_fresh.cuh"
#include "attention_partials.cuh"
#include "attention_tile.cuh"

namespace pilotfish::cuda {

/// Shared memory: the tile's queries, then keys and values of each warp's chunk, which make room for its result
/// [16 queries][kDim] f32; then the scales of each where there are some.
template <CacheType kType, int kDim>
struct SplitLayout {
  static constexpr int kQueries = kTileQueries * kQueryBytes<kDim>;
  static constexpr int kChunkBytes = kChunkKeys * kCacheRowBytes<kType, kDim>;
  static constexpr int kScales = kQueries + kAttentionWarps * 2 * kChunkBytes;
  static constexpr int kScaleBytes = kHasScales<kType> ? kChunkKeys * static_cast<int>(sizeof(float)) : 0;
  static constexpr int kBytes = kScales + kAttentionWarps * 2 * kScaleBytes;
  static_assert(kTileQueries * kDim * 4 <= 2 * kChunkBytes, "a result fits where the keys and values were");
  static_assert(kAttentionWarps == kSplitChunks, "a chunk a warp");

  __host__ __device__ static constexpr int keys(int warp) { return kQueries + warp * 2 * kChunkBytes; }
  __host__ __device__ static constexpr int values(int warp) { return keys(warp) + kChunkBytes; }
  __device__ static float* scales(uint8_t* shared, int warp, bool of_values) {
    return reinterpret_cast<float*>(shared + kScales + (warp * 2 + (of_values ? 1 : 0)) * kScaleBytes);
  }
};

using SplitResults = Softmax[kAttentionWarps][kTileQueries];

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

  __device__ int last_split() const { return seen_.last / kSplitKeys; }

  /// Whether this warp's chunk of the cache has nothing that a kernel before this one in the pass writes.
  __device__ bool is_there(int split) const {
    return rows_.are_made_here() || first_key(split) + kChunkKeys <= tile_.sequence.context;
  }

  /// Sets out to load this warp's chunk of a split: keys, then values. What was begun before lands before the values.
  __device__ void load(int split) {
    cell_ = kNoKey;
    if (!has_keys(split)) return commit_copies();
    cell_ = lane_cell(a_, tile_, seen_, first_key(split));
    if (cell_ >= 0 && rows_.row_of_key(first_key(split) + lane_) >= 0) cell_ = kFreshKey;
    const int offset = cell_ < 0 ? cell_ : row_offset<kType>(a_, cell_, blockIdx.y);
    load_rows<kType, kDim, kChunkKeys>(a_, a_.key_cache, offset, 0, at_ + Shared::keys(warp_));
    commit_copies();
    load_rows<kType, kDim, kChunkKeys>(a_, a_.value_cache, offset, 0, at_ + Shared::values(warp_));
    commit_copies();
    if constexpr (kHasScales<kType>) scales_ = LaneScales(a_, cell_, blockIdx.y);
  }

  /// Has this warp's chunk of a split brought into L2.
  __device__ void prefetch([[maybe_unused]] int split) const {
#if __CUDA_ARCH__ >= 900
    if (split > last_split() || !has_keys(split)) return;
    const int cell = lane_cell(a_, tile_, seen_, first_key(split));
    if (cell < 0 || first_key(split) + lane_ >= tile_.sequence.context) return;
    const size_t offset = row_offset<kType>(a_, cell, blockIdx.y);
    const int num_bytes = a_.shape.head_dim * kElementBytes<kType>;
    prefetch_bulk(static_cast<const uint4*>(a_.key_cache) + offset, num_bytes);
    prefetch_bulk(static_cast<const uint4*>(a_.value_cache) + offset, num_bytes);
#endif
  }

  /// One split that was loaded: leaves each warp's result in shared memory.
  __device__ void attend(int split, SplitResults& results) const {
    const ChunkPlace chunk = {at_ + Shared::keys(warp_), at_ + Shared::values(warp_),
                              Shared::scales(shared_, warp_, false), Shared::scales(shared_, warp_, true)};
    if (kHasScales<kType> && cell_ != kFreshKey) {
      scales_.store<kType>(Shared::scales(shared_, warp_, false), Shared::scales(shared_, warp_, true), lane_);
    }
    Running<kDim> running;
    running.clear();
    wait_for_copies<1>();
    __syncthreads();  // the queries too
    if (has_keys(split)) {
      const KeyRange seen[2] = {tile_.keys(a_, tiling_, lane_ / 4), tile_.keys(a_, tiling_, lane_ / 4 + 8)};
      attend_chunk<kType, Order::kFirst, kDim>(at_, chunk, first_key(split), seen, {a_.shape.scale, a_.shape.softcap},
                                               num_queries() > 8, running, [] {
                                                 wait_for_copies<0>();
                                                 __syncwarp();
                                               });
    }
    __syncwarp();
    leave(running, results[warp_]);
    __syncthreads();
  }

  /// The result of a split that is not the last one, where it is not before all that a query sees.
  __device__ void send(int split, const SplitResults& results) const {
    for_each_vector([&](int query, size_t index, int vector) {
      if (split < first_split_of(query)) return;
      const ColumnTotal total = add_warps(results, query, vector);
      store_relaxed(partials_.values(index, split) + vector, total.sum);
      if (vector == 0) {
        store_relaxed(partials_.softmax(index, split), make_float4(total.softmax.maximum, total.softmax.sum, 0, 0));
      }
    });
  }

  /// Adds the results of all splits, the last one's from shared memory, and writes the output.
  __device__ void finish(const SplitResults& results) const {
    const int last = last_split();
    for_each_vector([&](int query, size_t index, int vector) {
      ColumnTotal total;
      total.add_splits(partials_, index, vector, first_split_of(query), last);
      const ColumnTotal own = add_warps(results, query, vector);
      total.add(own.softmax, own.sum);
      const float inverse = kValueUnit<kType> / total.softmax.sum;
      const float values[4] = {total.sum.x * inverse, total.sum.y * inverse, total.sum.z * inverse,
                               total.sum.w * inverse};
#pragma unroll
      for (int i = 0; i < 4; ++i) write_result(a_, index, vector * 4 + i, values[i]);
    });
    __syncthreads();
    const int first = first_split_of(0), num_sent = last - first;  // a tile's first query sees furthest back
    for (int i = threadIdx.x; i < num_queries() * num_sent; i += kAttentionThreads) {
      const int query = i / num_sent, split = first + i % num_sent;
      if (!tile_.has(tiling_, query) || split < first_split_of(query)) continue;
      Partials::clear(partials_.softmax(tile_.index(a_, tiling_, query), split));
    }
  }

 private:
  __device__ int num_queries() const { return tile_.num_rows * tiling_.heads; }
  __device__ int first_split_of(int query) const { return tile_.seen(a_, tiling_, query).first / kSplitKeys; }
  __device__ int first_key(int split) const { return split * kSplitKeys + warp_ * kChunkKeys; }
  __device__ bool has_keys(int split) const {
    return first_key(split) <= seen_.last && first_key(split) + kChunkKeys > seen_.first;
  }

  /// Columns from `column` on of a warp's result; a multiple of 4. Of bytes, lanes write 4 columns each, kDim / 4
  /// apart, and would meet in one bank.
  __device__ float* result(int warp, int query, int column) const {
    if constexpr (kHasScales<kType>) column ^= column / (kDim / 4) * 4;
    return reinterpret_cast<float*>(shared_ + Shared::keys(warp)) + query * kDim + column;
  }

  /// Calls work(query of the tile, its index in the pass, four of its columns) for this thread's share.
  template <class Work>
  __device__ void for_each_vector(const Work& work) const {
    const int num_vectors = a_.shape.head_dim / 4;
    for (int i = threadIdx.x; i < num_queries() * num_vectors; i += kAttentionThreads) {
      const int query = i / num_vectors;
      if (tile_.has(tiling_, query)) work(query, tile_.index(a_, tiling_, query), i % num_vectors);
    }
  }

  __device__ ColumnTotal add_warps(const SplitResults& results, int query, int vector) const {
    ColumnTotal total;
#pragma unroll
    for (int warp = 0; warp < kAttentionWarps; ++warp) {
      total.add(results[warp][query], *reinterpret_cast<const float4*>(result(warp, query, vector * 4)));
    }
    return total;
  }

  __device__ void leave(const Running<kDim>& running, Softmax (&softmax)[kTileQueries]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = lane_ / 4 + half * 8;
      if (query >= num_queries()) continue;
      if (lane_ % 4 == 0) softmax[query] = running.softmax[half];
      if constexpr (!kHasScales<kType>) {
#pragma unroll
        for (int i = 0; i < kDim / 8; ++i) {
          const float4& v = running.values[i];
          *reinterpret_cast<float2*>(result(warp_, query, i * 8) + lane_ % 4 * 2) =
              half == 0 ? make_float2(v.x, v.y) : make_float2(v.z, v.w);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kDim / 8; i += 4) {
          const float4* const v = running.values + i;
          *reinterpret_cast<float4*>(result(warp_, query, kept_column<kType, kDim>(i, 0))) =
              half == 0 ? make_float4(v[0].x, v[1].x, v[2].x, v[3].x) : make_float4(v[0].z, v[1].z, v[2].z, v[3].z);
          *reinterpret_cast<float4*>(result(warp_, query, kept_column<kType, kDim>(i, 1))) =
              half == 0 ? make_float4(v[0].y, v[1].y, v[2].y, v[3].y) : make_float4(v[0].w, v[1].w, v[2].w, v[3].w);
        }
      }
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
  int cell_ = kNoKey;  // of this lane's key in the chunk that was loaded last
  LaneScales scales_;
};

}  // namespace pilotfish::cuda
