// Rows of a pass and the cache slots that they write and see. A row's keys, in order, have indices 0, 1, ...: the
// committed slots, then the rows of its tree path (causal: all rows up to its own). An index is a position too.
#pragma once

#include <algorithm>

#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

inline bool has_valid_sequences(const PagedAttention& a) {
  return a.num_seqs == 1 || (a.num_seqs > 1 && a.seq_starts && a.num_seqs <= a.num_rows && a.num_rows <= kMaxSplitRows);
}

inline bool is_valid(const PagedAttention& a) {
  const AttentionShape& shape = a.shape;
  const bool heads_fit = shape.num_kv_heads > 0 && shape.num_heads > 0 && shape.num_heads % shape.num_kv_heads == 0;
  const bool dims_fit = shape.head_dim > 0 && shape.head_dim % 4 == 0 && shape.head_dim <= kMaxHeadDim &&
                        shape.rotary_dim % 4 == 0 && shape.rotary_dim <= shape.head_dim;
  const bool blocks_fit = a.block_size >= kLeastBlock && (a.block_size & (a.block_size - 1)) == 0;
  return heads_fit && dims_fit && blocks_fit && shape.scale > 0 && is_on_gpus(a.cache_type) && a.num_rows > 0 &&
         a.max_blocks > 0 && a.most_sequence_rows >= 0 && has_valid_sequences(a);
}

/// Whether tensor cores compute the layer, in tiles whose rows are copied in pieces of 16 bytes.
inline bool is_tiled(const PagedAttention& a) {
  const int columns = has_scales(a.cache_type) ? 16 : 8;
  const bool is_special = a.slopes || a.key_biases || a.sinks || a.shape.shares_cache;
  return !is_special && a.shape.head_dim <= kMaxTiledHeadDim && a.shape.head_dim % columns == 0;
}

/// What bounds the rows of each: the others have one.
inline int most_rows_of_sequence(const PagedAttention& a) {
  const int most = a.num_rows - a.num_seqs + 1;
  return a.num_seqs == 1 || a.most_sequence_rows == 0 ? most : std::min(a.most_sequence_rows, most);
}

/// Behind the last sequence's rows it is the last one.
__device__ __forceinline__ int sequence_of_row(const PagedAttention& pass, int row) {
  int sequence = 0;
  while (sequence + 1 < pass.num_seqs && __ldcg(pass.seq_starts + sequence + 1) <= row) ++sequence;
  return sequence;
}

/// The rows of one of several sequences as a pass of their own. `query_partials`: floats of a query's partial results.
__device__ __forceinline__ PagedAttention rows_of_sequence(const PagedAttention& a, int sequence,
                                                           size_t query_partials) {
  const AttentionShape& shape = a.shape;
  const int first = __ldcg(a.seq_starts + sequence);
  const size_t query = static_cast<size_t>(first) * shape.num_heads;  // of [rows of the pass, num_heads]
  PagedAttention rows = a;
  rows.num_rows = __ldcg(a.seq_starts + sequence + 1) - first;
  rows.context_lens += sequence;
  rows.block_table += static_cast<size_t>(sequence) * a.max_blocks;
  rows.qkv += static_cast<size_t>(first) * (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  rows.position_ids += first;
  if (a.tree_mask) rows.tree_mask += first;
  rows.queries = static_cast<__half*>(a.queries) + query * shape.head_dim;
  rows.partials += query * query_partials;
  rows.out += query * shape.head_dim;
  if (a.halves_out) rows.halves_out = static_cast<__half*>(a.halves_out) + query * shape.head_dim;
  return rows;
}

/// Sizes of blocks are powers of two.
__device__ __forceinline__ int block_of(const PagedAttention& a, int slot) {
  return slot >> (31 - __clz(a.block_size));
}

__device__ __forceinline__ int table_entry(const PagedAttention& a, int slot) {
  return __ldcg(a.block_table + block_of(a, slot));
}

/// Index of a slot in the pool's [num_blocks * block_size].
__device__ __forceinline__ int cell_of(const PagedAttention& a, int slot) {
  return table_entry(a, slot) * a.block_size + (slot & (a.block_size - 1));
}

__device__ __forceinline__ unsigned long long mask_of_row(const PagedAttention& a, int row) {
  return __ldcg(reinterpret_cast<const unsigned long long*>(a.tree_mask) + row);
}

/// A row of a tree writes the slot of its own bit, its mask's highest.
__device__ __forceinline__ int slot_of_row(const PagedAttention& a, int context, int row) {
  return context + (a.tree_mask ? 63 - __clzll(static_cast<long long>(mask_of_row(a, row))) : row);
}

/// The key indices that a row sees: first..last.
struct KeyRange {
  int first;
  int last;
};

__device__ __forceinline__ KeyRange keys_of_row(const PagedAttention& a, int context, int row) {
  const int last = context + (a.tree_mask ? __popcll(mask_of_row(a, row)) - 1 : row);
  if (a.shape.sliding_window == 0) return {0, last};
  const int oldest = __ldcg(a.position_ids + row) - a.shape.sliding_window + 1;
  return {min(max(oldest, 0), last), last};
}

/// Slot of a key index; `mask` is the row's tree mask, 0 for a causal pass.
__device__ __forceinline__ int slot_of_key(int context, unsigned long long mask, int key) {
  if (mask == 0 || key < context) return key;
#pragma unroll 1
  for (int skip = key - context; skip > 0; --skip) mask &= mask - 1;
  return context + __ffsll(static_cast<long long>(mask)) - 1;
}

}  // namespace pilotfish::cuda
