// Attention of few rows: thread blocks share the keys. A split of 128 keys is a chunk for each of four warps; the block
// that finishes last adds the splits, in order.
#include <algorithm>

#include "attention_tile.cuh"

namespace pilotfish::cuda {
namespace {

/// Shared memory: the tile's queries, then keys and values of each warp's chunk. A warp's keys make room for its result
/// [16 queries][kDim] f32.
template <int kDim>
struct Layout {
  static constexpr int kQueryBytes = kTileQueries * kRowBytes<kDim>;
  static constexpr int kChunkBytes = kChunkKeys * kRowBytes<kDim>;
  static constexpr int kBytes = kQueryBytes + kAttentionWarps * 2 * kChunkBytes;
  static_assert(kTileQueries * kDim * 4 <= kChunkBytes, "a result fits where the keys were");
  static_assert(kAttentionWarps == kSplitChunks, "a chunk a warp");

  __host__ __device__ static constexpr int keys(int warp) { return kQueryBytes + warp * 2 * kChunkBytes; }
  __host__ __device__ static constexpr int values(int warp) { return keys(warp) + kChunkBytes; }
};

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

template <int kDim>
class SplitBlock {
 public:
  __device__ SplitBlock(const PagedAttention& a, const Tiling& tiling, const Tile& tile, const KeyRange& seen,
                        int num_splits, uint8_t* shared)
      : a_(a),
        tiling_(tiling),
        tile_(tile),
        seen_(seen),
        partials_{a, num_splits},
        shared_(shared),
        at_(shared_address(shared)),
        warp_(threadIdx.x / kWarpSize),
        lane_(threadIdx.x % kWarpSize) {}

  __device__ int first_split() const { return seen_.first / kSplitKeys; }
  __device__ int last_split() const { return seen_.last / kSplitKeys; }

  __device__ bool has_keys(int split) const {
    return first_key(split) <= seen_.last && first_key(split) + kChunkKeys > seen_.first;
  }
  /// Whether this warp's chunk has nothing that the pass itself writes.
  __device__ bool is_committed(int split) const { return first_key(split) + kChunkKeys <= tile_.sequence.context; }

  /// Sets out to load this warp's chunk of a split: keys, then values. What was begun before lands before the values.
  __device__ void load(int split) const {
    if (!has_keys(split)) return commit_copies();
    const int cell = lane_cell(a_, tile_, seen_, first_key(split));
    load_keys<kDim, kChunkKeys>(a_, a_.key_cache, blockIdx.y, cell, 0, at_ + Layout<kDim>::keys(warp_));
    commit_copies();
    load_keys<kDim, kChunkKeys>(a_, a_.value_cache, blockIdx.y, cell, 0, at_ + Layout<kDim>::values(warp_));
    commit_copies();
  }

  /// One split that was loaded: leaves its partial result, or the output where it is the only one.
  __device__ void attend(int split, Softmax (&results)[kAttentionWarps][kTileQueries]) const {
    Running<kDim> running;
    running.clear();
    wait_for_copies<1>();
    __syncthreads();  // the queries too
    if (has_keys(split)) {
      const KeyRange seen[2] = {tile_.keys(a_, tiling_, lane_ / 4), tile_.keys(a_, tiling_, lane_ / 4 + 8)};
      attend_chunk<kDim>(at_, at_ + Layout<kDim>::keys(warp_), at_ + Layout<kDim>::values(warp_), first_key(split),
                         seen, {a_.shape.scale, a_.shape.softcap}, running, [] {
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
    for (int i = threadIdx.x; i < kTileQueries * num_vectors; i += kAttentionThreads) {
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
  __device__ int first_key(int split) const { return split * kSplitKeys + warp_ * kChunkKeys; }

  __device__ float* result(int warp) const { return reinterpret_cast<float*>(shared_ + Layout<kDim>::keys(warp)); }

  __device__ static void add(Softmax& total, float4& sum, const Softmax& softmax, const float4& part) {
    const Join factors = join(total, softmax);
    sum.x = joined(factors, sum.x, part.x);
    sum.y = joined(factors, sum.y, part.y);
    sum.z = joined(factors, sum.z, part.z);
    sum.w = joined(factors, sum.w, part.w);
  }

  __device__ void write(size_t index, int column, const Softmax& total, const float4& sum) const {
    const float inverse = 1.0f / total.sum;
    const float values[4] = {sum.x * inverse, sum.y * inverse, sum.z * inverse, sum.w * inverse};
#pragma unroll
    for (int i = 0; i < 4; ++i) write_result(a_, index, column + i, values[i]);
  }

  __device__ void leave(const Running<kDim>& running, Softmax (&softmax)[kTileQueries]) const {
    float* const target = result(warp_);
    const int query = lane_ / 4, column = lane_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      const float4& v = running.values[i];
      *reinterpret_cast<float2*>(target + query * kDim + i * 8 + column) = make_float2(v.x, v.y);
      *reinterpret_cast<float2*>(target + (query + 8) * kDim + i * 8 + column) = make_float2(v.z, v.w);
    }
    if (lane_ % 4 == 0) {
      softmax[query] = running.softmax[0];
      softmax[query + 8] = running.softmax[1];
    }
  }

  __device__ void add_warps(int split, const Softmax (&results)[kAttentionWarps][kTileQueries]) const {
    const int num_vectors = a_.shape.head_dim / 4;
    const bool is_only = first_split() == last_split();
    for (int i = threadIdx.x; i < kTileQueries * num_vectors; i += kAttentionThreads) {
      const int query = i / num_vectors, column = i % num_vectors * 4;
      if (!tile_.has(tiling_, query)) continue;
      Softmax total = {-INFINITY, 0.0f};
      float4 sum = {};
#pragma unroll
      for (int warp = 0; warp < kAttentionWarps; ++warp) {
        add(total, sum, results[warp][query], *reinterpret_cast<const float4*>(result(warp) + query * kDim + column));
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
  const KeyRange seen_;
  const Partials partials_;
  uint8_t* shared_;
  uint32_t at_;
  int warp_;
  int lane_;
};

template <int kDim>
__global__ void __launch_bounds__(kAttentionThreads)
    split_attention_kernel(const __grid_constant__ PagedAttention a, const __grid_constant__ Tiling tiling,
                           int num_splits) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ Softmax results[kAttentionWarps][kTileQueries];
  __shared__ bool is_last;
  let_dependents_start();
  // What the pass was given and what the cache held before it is read ahead.
  const Tile tile(a, tiling, blockIdx.z, blockIdx.y);
  if (tile.num_rows == 0) return;
  const KeyRange seen = tile.all_keys(a, tiling, 0, kTileQueries);
  const SplitBlock<kDim> block(a, tiling, tile, seen, num_splits, shared);
  const int first = block.first_split(), last = block.last_split();
  int split = first + static_cast<int>(blockIdx.x);
  if (split > last) return;
  const bool is_ahead = block.is_committed(split);
  if (is_ahead) block.load(split);
  wait_for_predecessors();
  constexpr int kWarpQueries = kTileQueries / kAttentionWarps;
  const int first_query = threadIdx.x / kWarpSize * kWarpQueries;
  load_queries<kDim, kWarpQueries>(a, tiling, tile, first_query,
                                   shared_address(shared) + first_query * kRowBytes<kDim>);
  commit_copies();
  if (is_ahead) {
    commit_copies();  // attend() leaves the last group to land later: an empty one here
  } else {
    block.load(split);
  }
  int num_done = 0;
  while (true) {
    block.attend(split, results);
    ++num_done;
    split += gridDim.x;
    if (split > last) break;
    block.load(split);
  }
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
  return for_head_dim(attention.shape.head_dim, [&]<int kDim>() {
    return launch_early(split_attention_kernel<kDim>, grid, kAttentionThreads, Layout<kDim>::kBytes, stream, attention,
                        tiling, num_splits);
  });
}

}  // namespace pilotfish::cuda
