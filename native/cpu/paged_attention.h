// Rotary embedding, KV write and attention over a paged cache: the operator PagedAttention of GRAPH.md on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cache_type.h"
#include "parallel.h"

namespace pilotfish {

inline constexpr int64_t kMaxHeadDim = 512;

enum class RotaryStyle { kHalves, kPairs };
// Where the keys and values of a pass's rows come from: beside their queries, or from the layer that wrote the cache.
enum class KvSource { kOwn, kShared };

struct AttentionShape {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t rotary_dim;
  RotaryStyle rotary_style;
  float scale;
  int64_t sliding_window;  // 0: none
  float softcap;           // 0: none
  float norm_epsilon;
  KvSource kv_source;

  int64_t group_size() const { return num_heads / num_kv_heads; }
  // Heads that a row of the input has.
  int64_t num_given() const { return num_heads + (kv_source == KvSource::kOwn ? 2 * num_kv_heads : 0); }
};

// keys, values: [num_blocks, block_size, num_kv_heads, head_dim], written in place; with scales head_dim + 2 bytes, of
// which a block has all elements first (int8: each 128 more than it stands for), then an f16 scale a slot and head.
struct KvPool {
  CacheType type;
  void* keys;
  void* values;
  int64_t block_size;
};

// The inputs of a pass, checked: every slot that a row names has a block, every position a rotary angle, and every row
// sees itself and no later row. With a mask a row's slot is as far behind the context as its highest bit says; lower
// bits may name rows of earlier passes.
struct AttentionRows {
  int64_t num_rows;
  int64_t num_seqs;
  int64_t max_blocks;
  const float* qkv;             // [num_rows, num_given() head_dim]
  const int32_t* position_ids;  // [num_rows]
  const int32_t* seq_starts;    // [num_seqs + 1]
  const int32_t* context_lens;  // [num_seqs]
  const int32_t* block_table;   // [num_seqs, max_blocks]
  const uint64_t* tree_mask;    // [num_rows] or nullptr: causal
  const float* cos;             // [positions, rotary_dim / 2]
  const float* sin;
  const float* q_norm;  // [head_dim] or nullptr
  const float* k_norm;
  const float* v_norm;
  const float* slopes;      // [num_heads] or nullptr: what a key's score loses for each position before the query
  const float* key_biases;  // [positions, num_heads] or nullptr: what a score gets by its key's position; no window
  const float* sinks;       // [num_heads] or nullptr: a score of no key, which only makes the weights of all keys less
  float* out;               // [num_rows, num_heads head_dim]
};

// A row's output depends, by bits, on its query and on the keys and values that it sees in the order of their slots,
// and on nothing else: a row of a chain or of a tree path has the bits of the same token decoded alone later.
void paged_attention(const AttentionShape& shape, const KvPool& pool, const AttentionRows& rows,
                     const Parallel& parallel);

}  // namespace pilotfish
