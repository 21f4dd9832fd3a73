// Where a warp's chunk of 32 keys lies in the pool, and its way into shared memory.
#pragma once

#include "attention_tile.cuh"

namespace pilotfish::cuda {

/// Where the keys of a warp's chunk lie in the pool.
template <CacheType kType, int kDim>
struct ChunkPlace {
  bool exists = false;    // whether anything of it is seen
  bool is_piece = false;  // rows that follow each other
  // Of the first key of a piece, else of this lane's key:
  int block = kNoKey;  // of the pool, or what is known of the key instead
  int slot = 0;        // of the block

  /// `seen`: what the block's queries see; is_fresh(key): whether the block makes it.
  template <class IsFresh>
  __device__ void find(const PagedAttention& a, const Tile& tile, const KeyRange& seen, int first_key,
                       const IsFresh& is_fresh) {
    exists = first_key <= seen.last && first_key + kChunkKeys > seen.first;
    is_piece = exists && first_key + kChunkKeys <= tile.num_stored(a) && a.shape.head_dim == kDim;
    block = kNoKey;
    const int key = first_key + threadIdx.x % kWarpSize;
    const bool is_seen = exists && key >= seen.first && key <= seen.last;
    if (is_piece) {
      block = table_entry(a, first_key);
      slot = first_key & (a.block_size - 1);
    } else if (is_seen && is_fresh(key)) {
      block = kFreshKey;
    } else if (is_seen) {
      const int its_slot = slot_of_key(tile.context, tile.mask, key);
      block = table_entry(a, its_slot);
      slot = its_slot & (a.block_size - 1);
    }
    __syncwarp();
  }

  /// Index in the pool's [num_blocks * block_size], or what is known instead. Waits for the block table.
  __device__ int cell(const PagedAttention& a) const { return block < 0 ? block : block * a.block_size + slot; }

  /// Sets out to copy the chunk's rows of a pool.
  __device__ void load(const PagedAttention& a, const void* pool, int kv_head, uint32_t target) const {
    if (!exists) return;
    const int offset = row(a, kv_head);
    if (is_piece) {
      load_piece<kType, kDim, kChunkKeys>(static_cast<const uint4*>(pool) + offset, target);
    } else {
      load_rows<kType, kDim, kChunkKeys>(a, pool, offset, target);
    }
  }

  /// row_offset() of the cell, or what is known instead.
  __device__ int row(const PagedAttention& a, int kv_head) const {
    const int its_cell = cell(a);
    return its_cell < 0 ? its_cell : row_offset<kType>(a, its_cell, kv_head);
  }
};

/// The scales of a lane's key and value, on their way to shared memory.
struct LaneScales {
  __half key = {};
  __half value = {};

  template <CacheType kType, int kDim>
  __device__ void load(const PagedAttention& a, const ChunkPlace<kType, kDim>& place, int kv_head) {
    if constexpr (!kHasScales<kType>) return;
    *this = {};
    if (place.block < 0) return;
    const int cell = place.cell(a) + (place.is_piece ? threadIdx.x % kWarpSize : 0);
    key = __ldcg(row_scale(a, a.key_cache, cell, kv_head));
    value = __ldcg(row_scale(a, a.value_cache, cell, kv_head));
  }
  /// `key_scales`, `value_scales`: of a split in shared memory.
  template <CacheType kType>
  __device__ void store(float* key_scales, float* value_scales) const {
    key_scales[threadIdx.x] = __half2float(key);
    value_scales[threadIdx.x] = __half2float(value) * kWeightScale<kType>;
  }
};

}  // namespace pilotfish::cuda
