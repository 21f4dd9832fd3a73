// Rows of the cache, one a slot and head, for each type of cache: where they lie in global memory, how they come into
// shared memory, and how they are written.
#pragma once

#include "attention_elements.cuh"
#include "attention_rows.cuh"
#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

/// A row of the cache in shared memory, padded so that ldmatrix meets no bank twice. kDim is head_dim rounded up to
/// what is compiled; the columns between are zero.
template <CacheType kType, int kDim>
inline constexpr int kCacheRowBytes = kDim * kElementBytes<kType> + 16;

/// What a lane knows of its key instead of an offset.
inline constexpr int kNoKey = -1;     // nobody sees it: zeros
inline constexpr int kFreshKey = -2;  // the block makes it from the pass's own rows

/// Number of a row in its pool: a head's slots of a block follow each other, so that a chunk is read in one piece.
/// `cell`: slot of the pool, [num_blocks * block_size].
__device__ __forceinline__ int row_index(const PagedAttention& a, int cell, int kv_head) {
  return (block_of(a, cell) * (a.shape.num_kv_heads - 1) + kv_head) * a.block_size + cell;
}

/// Offset of a row in its pool, in 16 bytes.
template <CacheType kType>
__device__ __forceinline__ int row_offset(const PagedAttention& a, int cell, int kv_head) {
  const int row = row_index(a, cell, kv_head);
  if constexpr (!kHasScales<kType>) return row * (a.shape.head_dim / 8);
  // Behind the bytes of each block before it are their scales.
  return row * (a.shape.head_dim / 16) + block_of(a, cell) * (a.block_size * a.shape.num_kv_heads / 8);
}

/// The scale of a row of a pool that has them, in global memory.
__device__ __forceinline__ __half* row_scale(const PagedAttention& a, void* pool, int cell, int kv_head) {
  const size_t block_rows = static_cast<size_t>(a.block_size) * a.shape.num_kv_heads;
  const size_t bytes = (block_of(a, cell) + 1) * block_rows * a.shape.head_dim;
  return reinterpret_cast<__half*>(static_cast<uint8_t*>(pool) + bytes) + row_index(a, cell, kv_head);
}

/// Copies a chunk's kNumKeys rows to shared memory by one warp, where they follow each other in the pool. `source`: the
/// first.
template <CacheType kType, int kDim, int kNumKeys>
__device__ __forceinline__ void load_piece(const uint4* source, uint32_t target) {
  constexpr int kVectors = kDim * kElementBytes<kType> / 16, kRowBytes = kCacheRowBytes<kType, kDim>;
  const int lane = threadIdx.x % kWarpSize;
  if constexpr (kWarpSize % kVectors == 0) {
    constexpr int kRows = kWarpSize / kVectors;  // at once
    target += lane / kVectors * kRowBytes + lane % kVectors * 16;
    source += lane;
    asm volatile("" : "+l"(source));  // or lane and constant are added anew for every copy
#pragma unroll
    for (int i = 0; i < kNumKeys / kRows; ++i) copy_16(target + i * kRows * kRowBytes, source + i * kWarpSize, 16);
  } else {
#pragma unroll 1
    for (int i = lane; i < kNumKeys * kVectors; i += kWarpSize) {
      copy_16(target + i / kVectors * kRowBytes + i % kVectors * 16, source + i, 16);
    }
  }
}

/// The same where each has an offset of its own, row_offset() of this lane's key, or what is known of it.
template <CacheType kType, int kDim, int kNumKeys>
__device__ __forceinline__ void load_rows(const PagedAttention& a, const void* pool, int offset, uint32_t target) {
  constexpr unsigned kVectors = kDim * kElementBytes<kType> / 16, kCopies = kNumKeys * kVectors;
  constexpr unsigned kColumns = 16 / kElementBytes<kType>;
#pragma unroll 2
  for (unsigned i = threadIdx.x % kWarpSize; i < kCopies; i += kWarpSize) {
    const unsigned key = i / kVectors, vector = i % kVectors;
    const int from = __shfl_sync(~0u, offset, key);
    if (from == kFreshKey) continue;
    const bool exists = from >= 0 && vector * kColumns < a.shape.head_dim;
    const auto* source = static_cast<const uint4*>(pool);
    if (exists) source += static_cast<size_t>(from) + vector;
    copy_16(target + key * kCacheRowBytes<kType, kDim> + vector * 16, source, exists ? 16 : 0);
  }
}

/// Stores two neighbouring columns of a query, or of a row of elements of two bytes, as f16.
__device__ __forceinline__ void store_pair(uint16_t* target, const float2& values) {
  *reinterpret_cast<__half2*>(target) = __halves2half2(finite_half(values.x), finite_half(values.y));
}

/// Column of a query in shared memory, so that the four bytes of a key that ldmatrix gives a lane meet theirs.
template <CacheType kType>
__device__ __forceinline__ int query_column(int column) {
  if constexpr (!kHasScales<kType>) return column;
  return (column & ~15) | (column >> 2 & 3) << 1 | (column & 1) | (column & 2) << 2;
}

}  // namespace pilotfish::cuda
