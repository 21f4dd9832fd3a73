// Which queries and keys a thread block of attention works on, and how they come into shared memory.
#pragma once

#include "attention_chunk.cuh"
#include "attention_rows.cuh"
#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * kWarpSize;

/// With a tree mask every row has its own list of keys, and a tile of its own; but all rows have the splits before the
/// context's last in common.
enum class KeyPart { kAll, kCommon, kOwn };

/// How the rows of a pass and the query heads that share a key head are cut into tiles of at most kQueries queries.
struct Tiling {
  KeyPart part;
  int rows;       // of a tile
  int heads;      // of a tile
  int parts;      // tiles that share the heads of a group
  int num_tiles;  // upper bound

  static Tiling of(const PagedAttention& a, int num_queries, KeyPart part) {
    const int group = a.shape.num_heads / a.shape.num_kv_heads;
    Tiling tiling;
    tiling.part = part;
    tiling.heads = group < num_queries ? group : num_queries;
    tiling.parts = (group + tiling.heads - 1) / tiling.heads;
    tiling.rows = part == KeyPart::kOwn ? 1 : num_queries / tiling.heads;
    const int row_tiles = (a.num_rows + tiling.rows - 1) / tiling.rows + (tiling.rows == 1 ? 0 : a.num_seqs - 1);
    tiling.num_tiles = row_tiles * tiling.parts;
    return tiling;
  }
};

struct Tile {
  SequenceRows sequence;
  int kv_head;
  int first_row;  // of the pass
  int num_rows;   // 0: nothing to do
  int first_head;
  int num_heads;
  unsigned long long mask;  // of the tile's one row, 0: keys are slots
  KeyRange part;            // keys beyond it are not the tile's

  __device__ Tile(const PagedAttention& a, const Tiling& tiling, int index, int head) : kv_head(head) {
    const int group = a.shape.num_heads / a.shape.num_kv_heads;
    const int in_group = index % tiling.parts * tiling.heads;
    first_head = kv_head * group + in_group;
    num_heads = min(tiling.heads, group - in_group);
    int tiles_left = index / tiling.parts;
    num_rows = 0;
    for (int i = 0; i < a.num_seqs; ++i) {
      sequence = sequence_rows(a, i);
      const int num_tiles = (sequence.num_rows + tiling.rows - 1) / tiling.rows;
      if (tiles_left < num_tiles) {
        first_row = sequence.first_row + tiles_left * tiling.rows;
        num_rows = min(tiling.rows, sequence.first_row + sequence.num_rows - first_row);
        break;
      }
      tiles_left -= num_tiles;
    }
    const int common_end = sequence.context / kSplitKeys * kSplitKeys;
    part = {tiling.part == KeyPart::kOwn ? common_end : 0, tiling.part == KeyPart::kCommon ? common_end - 1 : INT_MAX};
    mask = 0;
    if (tiling.part == KeyPart::kOwn && num_rows > 0) {
      mask = __ldcg(reinterpret_cast<const unsigned long long*>(a.tree_mask) + first_row);
    }
  }

  __device__ bool has(const Tiling& tiling, int query) const {
    return query / tiling.heads < num_rows && query % tiling.heads < num_heads;
  }
  /// Index of a query in [rows of the pass, num_heads].
  __device__ size_t index(const PagedAttention& a, const Tiling& tiling, int query) const {
    return static_cast<size_t>(first_row + query / tiling.heads) * a.shape.num_heads + first_head +
           query % tiling.heads;
  }
  /// All keys that a query sees, and those of them that are the tile's.
  __device__ KeyRange seen(const PagedAttention& a, const Tiling& tiling, int query) const {
    return keys_of_row(a, sequence, first_row + query / tiling.heads);
  }
  __device__ KeyRange keys(const PagedAttention& a, const Tiling& tiling, int query) const {
    if (!has(tiling, query)) return {1, 0};
    const KeyRange all = seen(a, tiling, query);
    return {max(all.first, part.first), min(all.last, part.last)};
  }

  /// From the first to the last key that any of the queries sees; the same in all lanes.
  __device__ KeyRange all_keys(const PagedAttention& a, const Tiling& tiling, int first_query, int num_queries) const {
    int first = INT_MAX, last = -1;
    for (int query = threadIdx.x % kWarpSize; query < num_queries; query += kWarpSize) {
      const KeyRange mine = keys(a, tiling, first_query + query);
      if (mine.first > mine.last) continue;
      first = min(first, mine.first);
      last = max(last, mine.last);
    }
    return {__reduce_min_sync(~0u, first), __reduce_max_sync(~0u, last)};
  }
};

/// Copies kCount queries of the tile to shared memory by one warp; those that do not exist are zero.
template <int kDim, int kCount>
__device__ void load_queries(const PagedAttention& a, const Tiling& tiling, const Tile& tile, int first_query,
                             uint32_t target) {
  constexpr int kVectors = kDim / 8;
  for (int i = threadIdx.x % kWarpSize; i < kCount * kVectors; i += kWarpSize) {
    const int query = first_query + i / kVectors, column = i % kVectors * 8;
    const bool exists = tile.has(tiling, query) && column < a.shape.head_dim;
    const auto* source = static_cast<const __half*>(a.queries);
    if (exists) source += tile.index(a, tiling, query) * a.shape.head_dim + column;
    copy_16(target + i / kVectors * kQueryBytes<kDim> + column * 2, source, exists ? 16 : 0);
  }
}

/// A lane's key of a chunk: its cell in the pool, or kNoKey, kFreshKey.
__device__ __forceinline__ int lane_cell(const PagedAttention& a, const Tile& tile, const KeyRange& seen,
                                         int first_key) {
  const int key = first_key + threadIdx.x % kWarpSize;
  if (key < seen.first || key > seen.last) return kNoKey;
  return tile.sequence.cell(a, slot_of_key(tile.sequence, tile.mask, key));
}

/// The scales of a lane's key and value, on their way to shared memory.
struct LaneScales {
  __half key;
  __half value;

  __device__ LaneScales() : key(), value() {}
  __device__ LaneScales(const PagedAttention& a, int cell, int kv_head) : LaneScales() {
    if (cell < 0) return;
    key = __ldcg(row_scale(a, a.key_cache, cell, kv_head));
    value = __ldcg(row_scale(a, a.value_cache, cell, kv_head));
  }
  /// `key_scales`, `value_scales`: of a chunk in shared memory.
  template <CacheType kType>
  __device__ void store(float* key_scales, float* value_scales, int index) const {
    key_scales[index] = __half2float(key);
    value_scales[index] = __half2float(value) * kWeightScale<kType>;
  }
};

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

inline int max_splits(int max_blocks, int block_size) {
  return (max_blocks * block_size + kSplitKeys - 1) / kSplitKeys;
}

/// Passes of at most so many rows are prepared by the blocks that attend, each all that it sees: 16 rows after 64
/// tokens took 13.7 us so, 11.5 after a kernel of their own.
inline constexpr int kMostFoldedRows = 8;

/// Calls launch.operator()<kType, kDim>() with the smallest compiled head size that holds head_dim.
template <class Launch>
cudaError_t for_cache(const PagedAttention& a, const Launch& launch) {
  const auto for_head_dim = [&]<CacheType kType>() {
    const int head_dim = a.shape.head_dim;
    if (head_dim <= 64) return launch.template operator()<kType, 64>();
    if (head_dim <= 96) return launch.template operator()<kType, 96>();
    if (head_dim <= 128) return launch.template operator()<kType, 128>();
    return launch.template operator()<kType, 256>();
  };
  switch (a.cache_type) {
    case CacheType::kF16:
      return for_head_dim.template operator()<CacheType::kF16>();
    case CacheType::kBf16:
      return for_head_dim.template operator()<CacheType::kBf16>();
    case CacheType::kInt8:
      return for_head_dim.template operator()<CacheType::kInt8>();
    case CacheType::kFp8:
      return for_head_dim.template operator()<CacheType::kFp8>();
    case CacheType::kF32:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace pilotfish::cuda
