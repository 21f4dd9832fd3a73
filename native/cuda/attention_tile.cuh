// Which queries and keys a thread block of attention works on, and how they come into shared memory.
#pragma once

#include "attention_chunk.cuh"
#include "attention_rows.cuh"
#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * kWarpSize;

/// Passes of at most so many rows are prepared by the blocks that attend, each all that it sees: 16 rows after 64
/// tokens took 13.7 us so, 11.5 after a kernel of their own.
inline constexpr int kMostFoldedRows = 8;

/// With a tree mask every row has its own list of keys, and a tile of its own; but all rows have the splits before the
/// context's last in common.
enum class KeyPart { kAll, kCommon, kOwn };

/// Division of small numbers without dividing.
struct Divisor {
  int value;
  unsigned inverse;  // 2^32 / value, rounded up

  static Divisor of(int value) { return {value, static_cast<unsigned>(((uint64_t{1} << 32) + value - 1) / value)}; }
  __device__ int divide(int number) const { return value == 1 ? number : __umulhi(number, inverse); }
};

/// How the rows of a pass and the query heads that share a key head are cut into tiles of at most kQueries queries.
struct Tiling {
  KeyPart part;
  int rows;       // of a tile
  int group;      // query heads that share a key head
  Divisor heads;  // of a tile
  Divisor parts;  // tiles that share the heads of a group
  int num_tiles;

  static Tiling of(const PagedAttention& a, int num_queries, KeyPart part) {
    Tiling tiling;
    tiling.part = part;
    tiling.group = a.shape.num_heads / a.shape.num_kv_heads;
    const int heads = tiling.group < num_queries ? tiling.group : num_queries;
    tiling.heads = Divisor::of(heads);
    tiling.parts = Divisor::of((tiling.group + heads - 1) / heads);
    tiling.rows = part == KeyPart::kOwn ? 1 : num_queries / heads;
    tiling.num_tiles = (a.num_rows + tiling.rows - 1) / tiling.rows * tiling.parts.value;
    return tiling;
  }
};

struct Tile {
  const Tiling& tiling;
  int context;  // slots that were committed before the pass
  int kv_head;
  int first_row;  // of the pass
  int num_rows;
  int first_head;
  int num_heads;
  unsigned long long mask;  // of the tile's one row, 0: keys are slots
  KeyRange part;            // keys beyond it are not the tile's

  __device__ Tile(const PagedAttention& a, const Tiling& cut, int num_committed, int index, int head)
      : tiling(cut), context(num_committed), kv_head(head) {
    const int row_tile = tiling.parts.divide(index),
              in_group = (index - row_tile * tiling.parts.value) * cut.heads.value;
    first_head = kv_head * tiling.group + in_group;
    num_heads = min(tiling.heads.value, tiling.group - in_group);
    first_row = row_tile * tiling.rows;
    num_rows = min(tiling.rows, a.num_rows - first_row);
    const int common_end = context / kSplitKeys * kSplitKeys;
    part = {tiling.part == KeyPart::kOwn ? common_end : 0, tiling.part == KeyPart::kCommon ? common_end - 1 : INT_MAX};
    mask = tiling.part == KeyPart::kOwn && num_rows > 0 ? mask_of_row(a, first_row) : 0;
  }

  /// A query of the tile: its row, counted from first_row, and its head, counted from first_head.
  __device__ int row_of(int query) const { return tiling.heads.divide(query); }
  __device__ int head_of(int query) const { return query - row_of(query) * tiling.heads.value; }
  __device__ bool has(int query) const { return row_of(query) < num_rows && head_of(query) < num_heads; }
  __device__ int num_queries() const { return num_rows * tiling.heads.value; }
  /// Index of a query in [rows of the pass, num_heads].
  __device__ size_t index(const PagedAttention& a, int query) const {
    return static_cast<size_t>(first_row + row_of(query)) * a.shape.num_heads + first_head + head_of(query);
  }
  /// The keys that a query sees, and are the tile's.
  __device__ KeyRange keys(const PagedAttention& a, int query) const {
    return has(query) ? keys_of(a, row_of(query)) : KeyRange{1, 0};
  }

  /// From the first to the last key that any of the queries sees; the same in all lanes.
  __device__ KeyRange all_keys(const PagedAttention& a, int first_query, int count) const {
    const int begin = row_of(first_query), end = min(row_of(first_query + count - 1) + 1, num_rows);
    if (begin >= end) return {INT_MAX, -1};
    if (!a.tree_mask && a.shape.sliding_window == 0) return keys_of(a, end - 1);
    int first = INT_MAX, last = -1;
    for (int row = begin + threadIdx.x % kWarpSize; row < end; row += kWarpSize) {
      const KeyRange mine = keys_of(a, row);
      if (mine.first > mine.last) continue;
      first = min(first, mine.first);
      last = max(last, mine.last);
    }
    __syncwarp();
    return {__reduce_min_sync(~0u, first), __reduce_max_sync(~0u, last)};
  }

  /// Leading keys whose slots lie in the pool as the keys do, once all before this kernel has ended.
  __device__ int num_stored(const PagedAttention& a) const {
    return a.num_rows > kMostFoldedRows && !a.tree_mask ? context + a.num_rows : context;
  }

 private:
  __device__ KeyRange keys_of(const PagedAttention& a, int row) const {
    const KeyRange all = keys_of_row(a, context, first_row + row);
    return {max(all.first, part.first), min(all.last, part.last)};
  }
};

/// Copies kCount queries of the tile to shared memory by one warp; those that do not exist are zero.
template <int kDim, int kCount>
__device__ void load_queries(const PagedAttention& a, const Tile& tile, int first_query, uint32_t target) {
  constexpr int kVectors = kDim / 8;
  for (int i = threadIdx.x % kWarpSize; i < kCount * kVectors; i += kWarpSize) {
    const int query = first_query + i / kVectors, column = i % kVectors * 8;
    const bool exists = tile.has(query) && column < a.shape.head_dim;
    const auto* source = static_cast<const __half*>(a.queries);
    if (exists) source += tile.index(a, query) * a.shape.head_dim + column;
    copy_16(target + i / kVectors * kQueryBytes<kDim> + column * 2, source, exists ? 16 : 0);
  }
}

/// What sums of weighted values are multiplied with at last.
template <CacheType kType>
inline constexpr float kValueUnit = 1.0f / kWeightScale<kType>;

/// Writes neighbouring finished elements of the output. Vector: float2 or float4.
template <class Vector>
__device__ __forceinline__ void write_result(const PagedAttention& a, size_t query, int column, const Vector& values) {
  const size_t at = query * a.shape.head_dim + column;
  *reinterpret_cast<Vector*>(a.out + at) = values;
  if (!a.halves_out) return;
  auto* const halves = reinterpret_cast<__half2*>(static_cast<__half*>(a.halves_out) + at);
  halves[0] = __halves2half2(saturated_half(values.x), saturated_half(values.y));
  if constexpr (sizeof(Vector) == sizeof(float4)) {
    halves[1] = __halves2half2(saturated_half(values.z), saturated_half(values.w));
  }
}

__device__ __forceinline__ float2 scaled(const float2& values, float factor) {
  return make_float2(values.x * factor, values.y * factor);
}
__device__ __forceinline__ float4 scaled(const float4& values, float factor) {
  return make_float4(values.x * factor, values.y * factor, values.z * factor, values.w * factor);
}

// The two ways to put splits together; both give a row the same bits.

/// Before many rows: queries go to a.queries, keys and values to the cache.
cudaError_t launch_attention_prepare(const PagedAttention& attention, cudaStream_t stream);
/// Few rows: splits of the context over thread blocks.
cudaError_t launch_split_attention(const PagedAttention& attention, cudaStream_t stream);
/// Many rows: a block walks all keys of 64 queries.
cudaError_t launch_prefill_attention(const PagedAttention& attention, cudaStream_t stream);

/// Layers that the tiles of tensor cores do not hold: attention_plain.cu, whatever the number of rows.
cudaError_t launch_plain_attention(const PagedAttention& attention, cudaStream_t stream);

inline int max_splits(int max_blocks, int block_size) {
  return (max_blocks * block_size + kSplitKeys - 1) / kSplitKeys;
}

/// Calls launch.operator()<kType, kDim>() with the smallest compiled head size that holds head_dim, of a tiled layer.
template <class Launch>
cudaError_t for_cache(const PagedAttention& a, const Launch& launch) {
  return for_cache_type(a.cache_type, [&]<CacheType kType>() {
    switch (padded_head_dim(a.shape.head_dim)) {
      case 64:
        return launch.template operator()<kType, 64>();
      case 96:
        return launch.template operator()<kType, 96>();
      case 128:
        return launch.template operator()<kType, 128>();
    }
    return launch.template operator()<kType, kMaxTiledHeadDim>();
  });
}

}  // namespace pilotfish::cuda
