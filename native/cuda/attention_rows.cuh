// Rows of a pass and the cache slots that they write and see. A row's keys, in order, have indices 0, 1, ...: the
// committed slots, then the rows of its tree path (causal: all rows up to its own). An index is a position too.
#pragma once

#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

inline bool is_valid(const PagedAttention& a) {
  const AttentionShape& shape = a.shape;
  const bool heads_fit = shape.num_kv_heads > 0 && shape.num_heads > 0 && shape.num_heads % shape.num_kv_heads == 0;
  const bool dims_fit = shape.head_dim > 0 && shape.head_dim % 8 == 0 && shape.head_dim <= kMaxHeadDim &&
                        shape.rotary_dim % 4 == 0 && shape.rotary_dim <= shape.head_dim;
  const bool scales_fit =
      !has_scales(a.cache_type) || (shape.head_dim % 16 == 0 && a.block_size * shape.num_kv_heads % 8 == 0);
  return heads_fit && dims_fit && scales_fit && shape.scale > 0 && a.cache_type != CacheType::kF32 && a.num_rows > 0 &&
         a.num_seqs > 0 && a.max_blocks > 0 && a.block_size > 0;
}

struct SequenceRows {
  int index;
  int first_row;
  int num_rows;
  int context;

  /// Index of a slot in the pool's [num_blocks * block_size].
  __device__ int cell(const PagedAttention& a, int slot) const {
    const int block = __ldcg(a.block_table + static_cast<size_t>(index) * a.max_blocks + slot / a.block_size);
    return block * a.block_size + slot % a.block_size;
  }
};

__device__ __forceinline__ SequenceRows sequence_rows(const PagedAttention& a, int index) {
  const int first = __ldcg(a.seq_starts + index);
  return {index, first, __ldcg(a.seq_starts + index + 1) - first, __ldcg(a.context_lens + index)};
}

__device__ __forceinline__ SequenceRows sequence_of_row(const PagedAttention& a, int row) {
  int index = 0;
  while (index + 1 < a.num_seqs && row >= __ldcg(a.seq_starts + index + 1)) ++index;
  return sequence_rows(a, index);
}

/// A row of a tree writes the slot of its own bit, its mask's highest.
__device__ __forceinline__ int slot_of_row(const PagedAttention& a, const SequenceRows& sequence, int row) {
  if (!a.tree_mask) return sequence.context + row - sequence.first_row;
  const unsigned long long mask = __ldcg(reinterpret_cast<const unsigned long long*>(a.tree_mask) + row);
  return sequence.context + 63 - __clzll(static_cast<long long>(mask));
}

/// The key indices that a row sees: first..last.
struct KeyRange {
  int first;
  int last;
};

__device__ __forceinline__ KeyRange keys_of_row(const PagedAttention& a, const SequenceRows& sequence, int row) {
  int last = sequence.context + row - sequence.first_row;
  if (a.tree_mask) {
    last = sequence.context + __popcll(__ldcg(reinterpret_cast<const unsigned long long*>(a.tree_mask) + row)) - 1;
  }
  if (a.shape.sliding_window == 0) return {0, last};
  const int oldest = __ldcg(a.position_ids + row) - a.shape.sliding_window + 1;
  return {min(max(oldest, 0), last), last};
}

/// Slot of a key index; `mask` is the row's tree mask, 0 for a causal pass.
__device__ __forceinline__ int slot_of_key(const SequenceRows& sequence, unsigned long long mask, int key) {
  if (mask == 0 || key < sequence.context) return key;
  for (int skip = key - sequence.context; skip > 0; --skip) mask &= mask - 1;
  return sequence.context + __ffsll(static_cast<long long>(mask)) - 1;
}

}  // namespace pilotfish::cuda
