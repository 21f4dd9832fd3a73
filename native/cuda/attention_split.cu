// Attention of few rows: thread blocks share the keys. A split of 128 keys is a chunk for each of four warps; the block
// that finishes last adds the splits, in order. Passes of up to kMostFoldedRows rows need no kernel before this one.
#include <algorithm>

#include "attention_fresh.cuh"
#include "attention_tile.cuh"

namespace pilotfish::cuda {
namespace {

/// Shared memory: the tile's queries, then keys and values of each warp's chunk, which make room for its result
/// [16 queries][kDim] f32; for int8 then the scales of each.
template <CacheType kType, int kDim>
struct Layout {
  static constexpr int kQueries = kTileQueries * kQueryBytes<kDim>;
  static constexpr int kChunkBytes = kChunkKeys * kCacheRowBytes<kType, kDim>;
  static constexpr int kScales = kQueries + kAttentionWarps * 2 * kChunkBytes;
  static constexpr int kScaleBytes = kType == CacheType::kInt8 ? kChunkKeys * static_cast<int>(sizeof(float)) : 0;
  static constexpr int kBytes = kScales + kAttentionWarps * 2 * kScaleBytes;
  static_assert(kTileQueries * kDim * 4 <= 2 * kChunkBytes, "a result fits where the keys and values were");
  static_assert(kAttentionWarps == kSplitChunks, "a chunk a warp");

  __host__ __device__ static constexpr int keys(int warp) { return kQueries + warp * 2 * kChunkBytes; }
  __host__ __device__ static constexpr int values(int warp) { return keys(warp) + kChunkBytes; }
  __device__ static float* scales(uint8_t* shared, int warp, bool of_values) {
    return reinterpret_cast<float*>(shared + kScales + (warp * 2 + (of_values ? 1 : 0)) * kScaleBytes);
  }
};

/// What registers must leave room for, so that a context of 2048 has a place for each of its splits at once.
template <CacheType kType, int kDim>
inline constexpr int kBlocksOfSm = kDim > 128                 ? 1
                                   : kType == CacheType::kF16 ? 3
                                                              : 4;

/// Results of splits in global memory: [query of the pass][split] of head_dim values, and their softmax behind all.
struct Partials {
  const PagedAttention& a;
  int num_splits;

  __device__ size_t index(size_t query, int split) const { return query * num_splits + split; }
  __device__ float* values(size_t query, int split) const {
    return a.partials + index(query, split) * a.shape.head_dim;
  }
  __device__ float2* softmax(size_t query, int split) const {
    const size_t all = static_cast<size_t>(a.num_rows) * a.shape.num_heads * num_splits * a.shape.head_dim;
    return reinterpret_cast<float2*>(a.partials + all) + index(query, split);
  }
};

template <CacheType kType, int kDim>
class SplitBlock {
  using Shared = Layout<kType, kDim>;

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

  __device__ int first_split() const { return seen_.first / kSplitKeys; }
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
    if constexpr (kType == CacheType::kInt8) scales_ = LaneScales(a_, cell_, blockIdx.y);
  }

  /// One split that was loaded: leaves its partial result, or the output where it is the only one.
  __device__ void attend(int split, Softmax (&results)[kAttentionWarps][kTileQueries]) const {
    const ChunkPlace chunk = {at_ + Shared::keys(warp_), at_ + Shared::values(warp_),
                              Shared::scales(shared_, warp_, false), Shared::scales(shared_, warp_, true)};
    if (kType == CacheType::kInt8 && cell_ != kFreshKey) {
      scales_.store(Shared::scales(shared_, warp_, false), Shared::scales(shared_, warp_, true), lane_);
    }
    Running<kDim> running;
    running.clear();
    wait_for_copies<1>();
    __syncthreads();  // the queries too
    if (has_keys(split)) {
      const KeyRange seen[2] = {tile_.keys(a_, tiling_, lane_ / 4), tile_.keys(a_, tiling_, lane_ / 4 + 8)};
      attend_chunk<kType, kDim>(at_, chunk, first_key(split), seen, {a_.shape.scale, a_.shape.softcap}, running, [] {
        wait_for_copies<0>();
        __syncwarp();
      });
    }
    __syncwarp();
    leave(running, results[warp_]);
    __syncthreads();
    add_warps(split, results);
    __syncthreads();
  }

  /// Adds the partial results of all splits and writes the output.
  __device__ void add_splits() const {
    const int num_vectors = a_.shape.head_dim / 4;
    for (int i = threadIdx.x; i < num_queries() * num_vectors; i += kAttentionThreads) {
      const int query = i / num_vectors, column = i % num_vectors * 4;
      if (!tile_.has(tiling_, query)) continue;
      const size_t index = tile_.index(a_, tiling_, query);
      Softmax total = {-INFINITY, 0.0f};
      float4 sum = {};
#pragma unroll 4
      for (int split = first_split(); split <= last_split(); ++split) {
        const float2 softmax = __ldcg(partials_.softmax(index, split));
        const float4 part = __ldcg(reinterpret_cast<const float4*>(partials_.values(index, split) + column));
        add(total, sum, {softmax.x, softmax.y}, part);
      }
      write(index, column, total, sum);
    }
  }

 private:
  __device__ int num_queries() const { return tile_.num_rows * tiling_.heads; }
  __device__ int first_key(int split) const { return split * kSplitKeys + warp_ * kChunkKeys; }
  __device__ bool has_keys(int split) const {
    return first_key(split) <= seen_.last && first_key(split) + kChunkKeys > seen_.first;
  }

  /// Columns from `column` on of a warp's result; a multiple of 4. int8: lanes write 4 columns each, kDim / 4 apart,
  /// and would meet in one bank.
  __device__ float* result(int warp, int query, int column) const {
    if constexpr (kType == CacheType::kInt8) column ^= column / (kDim / 4) * 4;
    return reinterpret_cast<float*>(shared_ + Shared::keys(warp)) + query * kDim + column;
  }

  __device__ static void add(Softmax& total, float4& sum, const Softmax& softmax, const float4& part) {
    const Join factors = join(total, softmax);
    sum.x = joined(factors, sum.x, part.x);
    sum.y = joined(factors, sum.y, part.y);
    sum.z = joined(factors, sum.z, part.z);
    sum.w = joined(factors, sum.w, part.w);
  }

  __device__ void write(size_t index, int column, const Softmax& total, const float4& sum) const {
    const float inverse = kValueUnit<kType> / total.sum;
    const float values[4] = {sum.x * inverse, sum.y * inverse, sum.z * inverse, sum.w * inverse};
#pragma unroll
    for (int i = 0; i < 4; ++i) write_result(a_, index, column + i, values[i]);
  }

  __device__ void leave(const Running<kDim>& running, Softmax (&softmax)[kTileQueries]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = lane_ / 4 + half * 8;
      if (query >= num_queries()) continue;
      if (lane_ % 4 == 0) softmax[query] = running.softmax[half];
      if constexpr (kType == CacheType::kF16) {
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

  __device__ void add_warps(int split, const Softmax (&results)[kAttentionWarps][kTileQueries]) const {
    const int num_vectors = a_.shape.head_dim / 4;
    const bool is_only = first_split() == last_split();
    for (int i = threadIdx.x; i < num_queries() * num_vectors; i += kAttentionThreads) {
      const int query = i / num_vectors, column = i % num_vectors * 4;
      if (!tile_.has(tiling_, query)) continue;
      Softmax total = {-INFINITY, 0.0f};
      float4 sum = {};
#pragma unroll
      for (int warp = 0; warp < kAttentionWarps; ++warp) {
        add(total, sum, results[warp][query], *reinterpret_cast<const float4*>(result(warp, query, column)));
      }
      const size_t index = tile_.index(a_, tiling_, query);
      if (is_only) {
        // As add_splits() would: a first part joins an empty total.
        Softmax softmax = {-INFINITY, 0.0f};
        float4 only = {};
        add(softmax, only, total, sum);
        write(index, column, softmax, only);
        continue;
      }
      *reinterpret_cast<float4*>(partials_.values(index, split) + column) = sum;
      if (column == 0) *partials_.softmax(index, split) = make_float2(total.maximum, total.sum);
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

template <CacheType kType, int kDim>
__global__ void __launch_bounds__(kAttentionThreads, kBlocksOfSm<kType, kDim>)
    split_attention_kernel(const __grid_constant__ PagedAttention a, const __grid_constant__ Tiling tiling,
                           int num_splits) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ Softmax results[kAttentionWarps][kTileQueries];
  __shared__ bool is_last;
  __shared__ int8_t row_of_bit[FreshRows::kMaskBits];
  let_dependents_start();
  // What the pass was given and what the cache held before it is read ahead.
  const Tile tile(a, tiling, blockIdx.z, blockIdx.y);
  if (tile.num_rows == 0) return;
  const KeyRange seen = tile.all_keys(a, tiling, 0, kTileQueries);
  const int last = seen.last / kSplitKeys;
  int split = seen.first / kSplitKeys + static_cast<int>(blockIdx.x);
  if (split > last) return;
  const FreshRows rows(a, tile, row_of_bit);
  SplitBlock<kType, kDim> block(a, tiling, tile, rows, seen, num_splits, shared);
  const bool is_ahead = block.is_there(split);
  if (is_ahead) block.load(split);
  using Fresh = FreshHeads<kType, kDim, Layout<kType, kDim>>;
  Fresh fresh(a, tiling, tile, rows, split, seen.last, true, shared);
  if (rows.are_made_here()) {
    fresh.begin();
    wait_for_predecessors();
    fresh.finish();
  } else {
    wait_for_predecessors();
    constexpr int kWarpQueries = kTileQueries / kAttentionWarps;
    const int first_query = threadIdx.x / kWarpSize * kWarpQueries;
    load_queries<kDim, kWarpQueries>(a, tiling, tile, first_query,
                                     shared_address(shared) + first_query * kQueryBytes<kDim>);
    commit_copies();
    if (is_ahead) {
      commit_copies();  // attend() leaves the last group to land later: an empty one here
    } else {
      block.load(split);
    }
  }
  int num_done = 0;
  while (true) {
    block.attend(split, results);
    ++num_done;
    split += gridDim.x;
    if (split > last) break;
    block.load(split);
    if (!rows.are_made_here()) continue;
    Fresh of_split(a, tiling, tile, rows, split, seen.last, false, shared);
    of_split.begin();
    of_split.finish();
  }
  const int first = block.first_split();
  if (first == last) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int* const arrivals = a.arrivals + blockIdx.z * a.shape.num_kv_heads + blockIdx.y;
    is_last = atomicAdd(arrivals, num_done) + num_done == last - first + 1;
    if (is_last) *arrivals = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  block.add_splits();
}

}  // namespace

cudaError_t launch_split_attention(const PagedAttention& attention, cudaStream_t stream) {
  const Tiling tiling = Tiling::of(attention, kTileQueries);
  const int num_splits = max_splits(attention.max_blocks, attention.block_size);
  constexpr int kMostColumns = 64;  // of blocks; each takes every 64th split of a longer context
  const dim3 grid(std::min(num_splits, kMostColumns), attention.shape.num_kv_heads, tiling.num_tiles);
  return for_cache(attention, [&]<CacheType kType, int kDim>() {
    return launch_early(split_attention_kernel<kType, kDim>, grid, kAttentionThreads, Layout<kType, kDim>::kBytes,
                        stream, attention, tiling, num_splits);
  });
}

}  // namespace pilotfish::cuda
