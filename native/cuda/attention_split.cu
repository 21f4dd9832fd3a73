// Attention of few rows: thread blocks share the keys by splits of 128; the block of the last split adds all, in order.
// Passes of up to kMostFoldedRows rows need no kernel before this one.
#include <algorithm>

#include "attention_split_block.cuh"

namespace pilotfish::cuda {
namespace {

/// What registers leave room for.
template <int kDim>
inline constexpr int kBlocksOfSm = kDim > 128 ? 1 : 3;

/// A kind of tiles, and how many blocks share the splits of each: a block takes every num_columns-th.
struct Share {
  Tiling tiling;
  Divisor num_columns;

  __host__ __device__ int num_blocks() const { return tiling.num_tiles * num_columns.value; }
};

/// `common` comes first, and has no tiles in a causal pass.
struct Shares {
  Share common;
  Share rest;
};

/// Most blocks beyond the end of the context end after one read.
__device__ bool is_surely_idle(const PagedAttention& a, KeyPart part, int context, int column) {
  if (part == KeyPart::kCommon) return (column + 1) * kSplitKeys > context;
  if (part == KeyPart::kAll) return column * kSplitKeys >= context + a.num_rows;
  return (context / kSplitKeys + column) * kSplitKeys >= context + FreshRows::kMaskBits;
}

/// Of one sequence.
template <CacheType kType, int kDim>
__device__ __forceinline__ void attend(const PagedAttention& a, const Shares& shares, int num_splits) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ int8_t row_of_bit[FreshRows::kMaskBits];
  // What the pass was given and what the cache held before it is read ahead.
  const int num_common = shares.common.num_blocks();
  const bool is_common = static_cast<int>(blockIdx.y) < num_common;
  const Share& share = is_common ? shares.common : shares.rest;
  const Tiling& tiling = share.tiling;
  const int block_index = blockIdx.y - (is_common ? 0 : num_common);
  const int tile_index = share.num_columns.divide(block_index);
  const int column = block_index - tile_index * share.num_columns.value;
  const int context = __ldcg(a.context_lens);
  if (is_surely_idle(a, tiling.part, context, column)) return;
  const Tile tile(a, tiling, context, tile_index, blockIdx.x);
  if (tile.num_rows <= 0) return;  // of a sequence that has fewer rows than another one
  const KeyRange seen = tile.all_keys(a, 0, kTileQueries);
  const int last = seen.last / kSplitKeys;
  const int first = seen.first / kSplitKeys + column;
  if (first > last) return;
  const FreshRows rows(a, tile, row_of_bit);
  SplitBlock<kType, kDim> block(a, tile, rows, seen, num_splits, shared);
  if (!block.is_there(first)) wait_for_predecessors();
  HeldQueries<kDim> queries;
  float4 query_sums = {};
  block.find(first);
  block.describe_queries();  // while the block table answers
  // A round attends to the split that the round before it loaded, and loads the next. One copy of every step: what a
  // block runs once comes from memory instruction by instruction.
  for (int split = -1, next = first;;) {
    if (split >= 0) {
      block.store_scales();
      wait_for_copies<1>();
      __syncthreads();  // keys and queries are there
      if (split == first) {
        queries.read(shared_address(shared));
        query_sums = sums_of_queries<kType, kDim>(queries);
      }
      block.score(split, queries, query_sums);
      __syncwarp();
    }
    block.load_keys();
    if (split >= 0) {
      __syncthreads();  // maxima are there
      block.soften_chunk(split);
      wait_for_copies<1>();
      __syncthreads();  // values and weights are there
      block.weigh_values(split);
      if (split == last && !is_common) return block.finish();
      block.send(split);
      if (next > last) return;
      __syncthreads();  // nobody is at values or weights any more
    }
    block.load_values();
    block.find(next + share.num_columns.value);
    if (rows.are_made_here()) {
      FreshHeads<kType, kDim, SplitLayout<kType, kDim>> fresh(a, tile, rows, next, seen.last, next == first, shared);
      fresh.begin();
      wait_for_predecessors();
      fresh.finish();
    } else if (next == first) {
      wait_for_predecessors();
      constexpr int kWarpQueries = kTileQueries / kAttentionWarps;
      const int first_query = threadIdx.x / kWarpSize * kWarpQueries;
      load_queries<kDim, kWarpQueries>(a, tile, first_query, shared_address(shared) + first_query * kQueryBytes<kDim>);
      commit_copies();
      commit_copies();  // the last group may land later above: an empty one here
    }
    split = next;
    next += share.num_columns.value;
  }
}

/// Several sequences have a plane of the grid each.
template <CacheType kType, int kDim, bool kIsShared>
__global__ void __launch_bounds__(kAttentionThreads, kBlocksOfSm<kDim>)
    split_attention_kernel(const __grid_constant__ PagedAttention pass, const __grid_constant__ Shares shares,
                           int num_splits) {
  let_dependents_start();
  if constexpr (kIsShared) {
    constexpr size_t kSplitFloats = Partials<kDim>::kParts * sizeof(Partial) / sizeof(float);
    attend<kType, kDim>(rows_of_sequence(pass, blockIdx.z, num_splits * kSplitFloats), shares, num_splits);
  } else {
    attend<kType, kDim>(pass, shares, num_splits);
  }
}

/// As many columns as leave every block a place at once, where that is at least two.
template <CacheType kType, int kDim>
int num_columns(const PagedAttention& a, const Tiling& tiling, int num_splits) {
  constexpr int kOfManyTiles = 4;
  // A path of 64 rows reaches into two splits.
  if (tiling.part == KeyPart::kOwn) return std::min(num_splits, 2);
  const int places = a.num_sms * kBlocksOfSm<kDim>, num_blocks = a.shape.num_kv_heads * tiling.num_tiles * a.num_seqs;
  if (places >= 2 * num_blocks) return std::min(num_splits, places / num_blocks);
  if (a.num_seqs == 1) return std::min(num_splits, kOfManyTiles);
  // Several sequences fill the device anyway: half the work a block is of use where it saves part of a wave.
  const auto num_waves = [&](int columns) { return (num_blocks * columns + places - 1) / places; };
  return std::min(num_splits, num_waves(2) < 2 * num_waves(1) ? 2 : 1);
}

}  // namespace

cudaError_t launch_split_attention(const PagedAttention& a, cudaStream_t stream) {
  const int num_splits = max_splits(a.max_blocks, a.block_size);
  return for_cache(a, [&]<CacheType kType, int kDim>() {
    PagedAttention widest = a;
    widest.num_rows = most_rows_of_sequence(a);
    const auto share = [&](KeyPart part) {
      const Tiling tiling = Tiling::of(widest, kTileQueries, part);
      return Share{tiling, Divisor::of(num_columns<kType, kDim>(a, tiling, num_splits))};
    };
    Shares shares = {{}, share(a.tree_mask ? KeyPart::kOwn : KeyPart::kAll)};
    if (a.tree_mask && num_splits > 1) shares.common = share(KeyPart::kCommon);
    // Blocks of one multiprocessor lie far apart in the grid: with heads side by side they are of different columns,
    // some of which have a split more.
    const dim3 grid(a.shape.num_kv_heads, shares.common.num_blocks() + shares.rest.num_blocks(), a.num_seqs);
    const auto kernel =
        a.num_seqs > 1 ? split_attention_kernel<kType, kDim, true> : split_attention_kernel<kType, kDim, false>;
    return launch_early(kernel, grid, kAttentionThreads, SplitLayout<kType, kDim>::kBytes, stream, a, shares,
                        num_splits);
  });
}

}  // namespace pilotfish::cuda
