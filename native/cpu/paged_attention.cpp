#include "paged_attention.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "attention_kernels.h"
#include "instruction_set.h"
#include "scratch.h"

namespace pilotfish {
namespace {

// Queries that share a chunk's conversion to float; more no longer pay and overflow the first-level cache.
constexpr int64_t kTileQueries = 64;
// Preparing fewer rows than this is quicker than waking another thread.
constexpr int64_t kSerialRows = 4;

const AttentionKernels& attention_kernels() {
  switch (instruction_set()) {
#if defined(__x86_64__)
    case InstructionSet::kAvx512:
      return avx512::kAttentionKernels;
    case InstructionSet::kAvx2:
      return avx2::kAttentionKernels;
#elif defined(__aarch64__)
    case InstructionSet::kI8mm:
    case InstructionSet::kDotprod:
    case InstructionSet::kNeon:
      return neon::kAttentionKernels;
#endif
    default:
      return portable::kAttentionKernels;
  }
}

struct RowTile {
  int64_t sequence;
  int64_t first_row;
  int64_t num_rows;
  int64_t num_splits;
};

// The lists of a pass; kept by the calling thread so that a warm pass allocates nothing.
struct Plan {
  std::vector<int64_t> sequences;  // of each row
  std::vector<int64_t> slots;      // of each row in its sequence
  std::vector<RowView> views;
  std::vector<RowTile> tiles;
  int64_t max_splits = 0;
};

RowView causal_view(int64_t slot, int64_t first_visible) { return {std::min(first_visible, slot), slot + 1, 0, 0}; }

RowView tree_view(uint64_t mask, int64_t position, int64_t context, int64_t first_visible) {
  // The mask is a path: each row that it names stands one position before the next, the highest at `position`.
  uint64_t tree = mask;
  for (int64_t hidden = first_visible - (position + 1 - std::popcount(mask)); hidden > 0; --hidden) tree &= tree - 1;
  // Rows seen without a gap after the context continue it.
  const int num_joined = std::countr_one(tree);
  const uint64_t apart = num_joined == 64 ? 0 : tree >> num_joined << num_joined;
  return {std::min(first_visible, context), context + num_joined, context, apart};
}

void plan_views(const AttentionShape& shape, const AttentionRows& rows, Plan& plan) {
  plan.views.clear();
  plan.sequences.clear();
  plan.slots.clear();
  for (int64_t sequence = 0; sequence < rows.num_seqs; ++sequence) {
    const int64_t first_row = rows.seq_starts[sequence], context = rows.context_lens[sequence];
    for (int64_t row = first_row; row < rows.seq_starts[sequence + 1]; ++row) {
      const int64_t oldest = rows.position_ids[row] - shape.sliding_window + 1;
      const int64_t first_visible = shape.sliding_window == 0 ? 0 : std::max<int64_t>(0, oldest);
      plan.sequences.push_back(sequence);
      if (rows.tree_mask == nullptr) {
        plan.slots.push_back(context + row - first_row);
        plan.views.push_back(causal_view(plan.slots.back(), first_visible));
      } else {
        plan.slots.push_back(context + std::bit_width(rows.tree_mask[row]) - 1);
        plan.views.push_back(tree_view(rows.tree_mask[row], rows.position_ids[row], context, first_visible));
      }
    }
  }
}

void plan_tiles(const AttentionShape& shape, const AttentionRows& rows, int64_t num_workers, Plan& plan) {
  const int64_t balanced = (rows.num_rows * shape.num_kv_heads + 2 * num_workers - 1) / (2 * num_workers);
  const int64_t tile_rows = std::clamp<int64_t>(std::min(balanced, kTileQueries / shape.group_size()), 1, 64);
  plan.tiles.clear();
  plan.max_splits = 0;
  for (int64_t sequence = 0; sequence < rows.num_seqs; ++sequence) {
    const int64_t last_row = rows.seq_starts[sequence + 1];
    for (int64_t row = rows.seq_starts[sequence]; row < last_row; row += tile_rows) {
      RowTile tile{sequence, row, std::min(tile_rows, last_row - row), 0};
      for (int64_t i = row; i < row + tile.num_rows; ++i) {
        tile.num_splits = std::max(tile.num_splits, plan.views[i].num_splits());
      }
      plan.max_splits = std::max(plan.max_splits, tile.num_splits);
      plan.tiles.push_back(tile);
    }
  }
}

// One pass: holds what its tasks share.
class AttentionPass {
 public:
  AttentionPass(const AttentionShape& shape, const KvPool& pool, const AttentionRows& rows, const Plan& plan,
                float* queries)
      : kernels_(attention_kernels()), shape_(shape), pool_(pool), rows_(rows), plan_(plan), queries_(queries) {}

  void prepare(const Parallel& parallel) const {
    const auto prepare_row = [this](int64_t row) {
      const int64_t sequence = plan_.sequences[row];
      const int64_t slot = plan_.slots[row];
      const int64_t block = rows_.block_table[sequence * rows_.max_blocks + slot / pool_.block_size];
      kernels_.prepare_row(shape_, pool_, rows_, row, block * pool_.block_size + slot % pool_.block_size,
                           queries_ + row * shape_.num_heads * shape_.head_dim);
    };
    if (rows_.num_rows <= kSerialRows) {
      for (int64_t row = 0; row < rows_.num_rows; ++row) prepare_row(row);
    } else {
      parallel.run(rows_.num_rows, prepare_row);
    }
  }

  // A task is a tile and a KV head; it walks the splits in order.
  void attend_tiles(const Parallel& parallel) const {
    parallel.run(num_tile_tasks(), [this](int64_t task) {
      thread_local Scratch scratch;
      const RowTile& row_tile = plan_.tiles[task / shape_.num_kv_heads];
      const AttentionTile tile = attention_tile(task);
      const int64_t num_queries = tile.num_rows * shape_.group_size();
      const int64_t partials = num_queries * partial_floats(shape_.head_dim);
      const int64_t floats = 2 * partials + attend_scratch_floats(num_queries, shape_.head_dim);
      auto* const running = reinterpret_cast<float*>(scratch.reserve(static_cast<size_t>(floats) * sizeof(float)));
      kernels_.attend(shape_, pool_, tile, 0, running + 2 * partials, running);
      for (int64_t split = 1; split < row_tile.num_splits; ++split) {
        kernels_.attend(shape_, pool_, tile, split, running + 2 * partials, running + partials);
        kernels_.merge(num_queries, shape_.head_dim, running, running + partials);
      }
      kernels_.finish(shape_, tile, running);
    });
  }

  // A task is a split, a tile and a KV head: for few rows after a context. Same arithmetic, same order. The heads of a
  // split lie side by side in the cache and are read one after the other.
  void attend_splits(const Parallel& parallel, Scratch& results) const {
    const int64_t tile_queries = most_tile_queries(), stride = tile_queries * partial_floats(shape_.head_dim);
    const int64_t num_tasks = num_tile_tasks() * plan_.max_splits;
    auto* const partials =
        reinterpret_cast<float*>(results.reserve(static_cast<size_t>(num_tasks * stride) * sizeof(float)));
    parallel.run(num_tasks, [&](int64_t task) {
      thread_local Scratch scratch;
      const int64_t tile_task = task % num_tile_tasks(), split = task / num_tile_tasks();
      if (split >= plan_.tiles[tile_task / shape_.num_kv_heads].num_splits) return;
      const int64_t floats = attend_scratch_floats(tile_queries, shape_.head_dim);
      auto* const work = reinterpret_cast<float*>(scratch.reserve(static_cast<size_t>(floats) * sizeof(float)));
      kernels_.attend(shape_, pool_, attention_tile(tile_task), split, work,
                      partials + (tile_task * plan_.max_splits + split) * stride);
    });
    for (int64_t task = 0; task < num_tile_tasks(); ++task) {
      const RowTile& row_tile = plan_.tiles[task / shape_.num_kv_heads];
      float* const running = partials + task * plan_.max_splits * stride;
      for (int64_t split = 1; split < row_tile.num_splits; ++split) {
        kernels_.merge(row_tile.num_rows * shape_.group_size(), shape_.head_dim, running, running + split * stride);
      }
      kernels_.finish(shape_, attention_tile(task), running);
    }
  }

  int64_t num_tile_tasks() const { return static_cast<int64_t>(plan_.tiles.size()) * shape_.num_kv_heads; }

 private:
  int64_t most_tile_queries() const {
    int64_t most = 0;
    for (const RowTile& tile : plan_.tiles) most = std::max(most, tile.num_rows);
    return most * shape_.group_size();
  }

  // Where the numbers of a KV head's queries begin among those of all heads.
  const float* of_group(const float* heads, int64_t kv_head) const {
    return heads == nullptr ? nullptr : heads + kv_head * shape_.group_size();
  }

  AttentionTile attention_tile(int64_t task) const {
    const RowTile& tile = plan_.tiles[task / shape_.num_kv_heads];
    const int64_t kv_head = task % shape_.num_kv_heads;
    const int64_t first = (tile.first_row * shape_.num_heads + kv_head * shape_.group_size()) * shape_.head_dim;
    return {plan_.views.data() + tile.first_row,
            rows_.block_table + tile.sequence * rows_.max_blocks,
            queries_ + first,
            rows_.out + first,
            of_group(rows_.slopes, kv_head),
            of_group(rows_.key_biases, kv_head),
            of_group(rows_.sinks, kv_head),
            tile.num_rows,
            kv_head};
  }

  const AttentionKernels& kernels_;
  const AttentionShape& shape_;
  const KvPool& pool_;
  const AttentionRows& rows_;
  const Plan& plan_;
  float* queries_;  // [num_rows, num_heads, head_dim], rotated and scaled
};

}  // namespace

void paged_attention(const AttentionShape& shape, const KvPool& pool, const AttentionRows& rows,
                     const Parallel& parallel) {
  if (rows.num_rows == 0) return;
  thread_local Plan plan;
  thread_local Scratch queries, results;
  plan_views(shape, rows, plan);
  plan_tiles(shape, rows, parallel.num_workers(), plan);
  const auto num_floats = static_cast<size_t>(rows.num_rows * shape.num_heads * shape.head_dim);
  const AttentionPass pass(shape, pool, rows, plan,
                           reinterpret_cast<float*>(queries.reserve(num_floats * sizeof(float))));
  pass.prepare(parallel);
  if (plan.max_splits > 1 && pass.num_tile_tasks() < 2 * parallel.num_workers()) {
    pass.attend_splits(parallel, results);
  } else {
    pass.attend_tiles(parallel);
  }
}

}  // namespace pilotfish
