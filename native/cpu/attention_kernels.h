// What one instruction set implements of `paged_attention`, and the structures that pass between it and the driver.
//
// The keys a row sees, in the order of their slots, form its logical list. The list is cut every kSplitKeys keys; a
// split's result is a Partial for each query, and partials are merged in order. Cuts depend on the row's list alone.
#pragma once

#include "paged_attention.h"

namespace pilotfish {

inline constexpr int64_t kSplitKeys = 128;
inline constexpr int64_t kChunkKeys = 16;  // slots converted to float at a time

// What a row sees: slots [first_slot, last_slot), then the rows of this pass whose bits are set in `tree`, row j of the
// sequence being slot tree_slot + j.
struct RowView {
  int64_t first_slot;
  int64_t last_slot;
  int64_t tree_slot;
  uint64_t tree;

  int64_t num_keys() const { return last_slot - first_slot + __builtin_popcountll(tree); }
  int64_t num_splits() const { return (num_keys() + kSplitKeys - 1) / kSplitKeys; }
};

// Some rows of one sequence with the query heads that share one KV head. Query (row, head of the group) has index
// row * group_size + head.
struct AttentionTile {
  const RowView* views;        // [num_rows]
  const int32_t* block_table;  // of the sequence
  const float* queries;        // first row's first query; rotated and scaled
  float* out;                  // like queries
  const float* slopes;         // of the group's heads, or nullptr
  const float* key_biases;     // of the first position and the group's first head, or nullptr
  const float* sinks;          // of the group's heads, or nullptr
  int64_t num_rows;
  int64_t kv_head;
};

// Where the head of a slot lies in a pool, in elements, and where its scale does.
struct CacheRow {
  int64_t at;
  int64_t scale_at;
};

inline CacheRow cache_row(const AttentionShape& shape, const KvPool& pool, int64_t block, int64_t slot_of_block,
                          int64_t kv_head) {
  const int64_t block_rows = pool.block_size * shape.num_kv_heads;
  const int64_t row = slot_of_block * shape.num_kv_heads + kv_head;
  if (!has_scales(pool.type)) return {(block * block_rows + row) * shape.head_dim, 0};
  const int64_t scale = format_of(pool.type).scale_bytes / element_bytes(pool.type);
  const int64_t first = block * block_rows * (shape.head_dim + scale);
  return {first + row * shape.head_dim, first + block_rows * shape.head_dim + row * scale};
}

constexpr int64_t padded_head_dim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// A query's running result: f32 [padded head_dim] weighted sum of values, then maximum score and sum of weights (0:
// empty).
constexpr int64_t partial_floats(int64_t head_dim) { return padded_head_dim(head_dim) + 16; }

// Working memory of attend: scores, one chunk of keys (transposed), one chunk of values.
constexpr int64_t attend_scratch_floats(int64_t num_queries, int64_t head_dim) {
  return num_queries * (kSplitKeys + kChunkKeys) + 2 * kChunkKeys * padded_head_dim(head_dim);
}

struct AttentionKernels {
  // Normalises, rotates and scales a row's queries to queries[num_heads, head_dim]; writes its key and value to `slot`,
  // an index into the pool's [num_blocks * block_size].
  void (*prepare_row)(const AttentionShape& shape, const KvPool& pool, const AttentionRows& rows, int64_t row,
                      int64_t slot, float* queries);

  // Attention of the tile's queries over split `split` of their lists: partials[num_queries, partial_floats].
  void (*attend)(const AttentionShape& shape, const KvPool& pool, const AttentionTile& tile, int64_t split,
                 float* scratch, float* partials);

  // Adds a later split's partials to the running ones.
  void (*merge)(int64_t num_queries, int64_t head_dim, float* running, const float* later);

  // Divides by the sum of weights and writes the tile's rows of the output.
  void (*finish)(const AttentionShape& shape, const AttentionTile& tile, const float* running);
};

namespace avx512 {
extern const AttentionKernels kAttentionKernels;
}
namespace avx2 {
extern const AttentionKernels kAttentionKernels;
}
namespace neon {
extern const AttentionKernels kAttentionKernels;
}
namespace portable {
extern const AttentionKernels kAttentionKernels;
}

}  // namespace pilotfish
