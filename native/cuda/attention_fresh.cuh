// What a block of attention of few rows makes of the pass itself: its queries, and the keys and values that its split
// has of the pass's rows. A warp a head; the block of a row's own tile also writes its keys and values into the cache.
#pragma once

#include "attention_head.cuh"
#include "attention_tile.cuh"

namespace pilotfish::cuda {

/// Which rows of the pass a tile's keys are.
class FreshRows {
 public:
  static constexpr int kMaskBits = 64;

  /// `row_of_bit`: shared memory of the block, [kMaskBits], used with a tree mask.
  __device__ FreshRows(const PagedAttention& a, const Tile& tile, int8_t* row_of_bit)
      : tile_(tile), row_of_bit_(row_of_bit), is_folded_(a.num_rows <= kMostFoldedRows) {
    if (!is_folded_ || tile.mask == 0) return;
    if (threadIdx.x < kMaskBits) row_of_bit[threadIdx.x] = -1;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < tile.sequence.num_rows) {
      const int row = tile.sequence.first_row + threadIdx.x;
      row_of_bit[slot_of_row(a, tile.sequence, row) - tile.sequence.context] = static_cast<int8_t>(row);
    }
    __syncthreads();
  }

  __device__ bool are_made_here() const { return is_folded_; }
  /// -1: the key is in the cache.
  __device__ int row_of_key(int key) const {
    const SequenceRows& sequence = tile_.sequence;
    if (!is_folded_ || key < sequence.context) return -1;
    if (tile_.mask == 0) return sequence.first_row + key - sequence.context;
    return row_of_bit_[slot_of_key(sequence, tile_.mask, key) - sequence.context];
  }

 private:
  const Tile& tile_;
  const int8_t* row_of_bit_;
  bool is_folded_;
};

/// `Layout`: of the block's shared memory.
template <CacheType kType, int kDim, class Layout>
class FreshHeads {
 public:
  /// Heads of one split: with its first one, a block makes the queries.
  __device__ FreshHeads(const PagedAttention& a, const Tiling& tiling, const Tile& tile, const FreshRows& rows,
                        int split, int last_key, bool with_queries, uint8_t* shared)
      : a_(a), tiling_(tiling), tile_(tile), rows_(rows), shared_(shared), lane_(a.shape) {
    num_queries_ = with_queries ? tile.num_rows * tiling.heads : 0;
    first_key_ = max(tile.sequence.context, split * kSplitKeys);
    num_keys_ = max(min(last_key, split * kSplitKeys + kSplitKeys - 1) - first_key_ + 1, 0);
  }

  /// Needs nothing of the predecessor.
  __device__ void begin() { take(threadIdx.x / kWarpSize); }

  /// After the wait for the predecessor.
  __device__ void finish() {
    for (int first = threadIdx.x / kWarpSize;;) {
      make();
      first += kAttentionWarps;
      if (first >= num_queries_ + 2 * num_keys_) return;
      take(first);
    }
  }

 private:
  enum class Kind { kNone, kQuery, kKey, kValue };
  struct Task {
    Kind kind;
    int row;    // of the pass
    int index;  // query of the tile, or key
  };

  __device__ Task task(int index) const {
    if (index < num_queries_) {
      return {tile_.has(tiling_, index) ? Kind::kQuery : Kind::kNone, tile_.first_row + index / tiling_.heads, index};
    }
    index -= num_queries_;
    if (index >= 2 * num_keys_) return {Kind::kNone, 0, 0};
    const bool is_value = index >= num_keys_;
    const int key = first_key_ + (is_value ? index - num_keys_ : index), row = rows_.row_of_key(key);
    return {row < 0 ? Kind::kNone : is_value ? Kind::kValue : Kind::kKey, row, key};
  }

  __device__ void take(int index) {
    task_ = task(index);
    if (task_.kind != Kind::kQuery && task_.kind != Kind::kKey) return;
    const size_t angle = static_cast<size_t>(__ldcg(a_.position_ids + task_.row)) * (a_.shape.rotary_dim / 2);
    Head<kDim>::load_angles(lane_, a_.cos + angle, a_.sin + angle, angles_);
  }

  __device__ void make() const {
    if (task_.kind == Kind::kNone) return;
    Head<kDim> head;
    head.load(lane_, source());
    if (task_.kind != Kind::kValue) {
      const float* const norm = task_.kind == Kind::kQuery ? a_.q_norm : a_.k_norm;
      if (norm) head.normalise(lane_, norm, a_.shape.head_dim, a_.shape.norm_epsilon);
      head.rotate(lane_, angles_);
    }
    task_.kind == Kind::kQuery ? store_query(head) : store(head);
  }

  __device__ int kv_head() const { return blockIdx.y; }

  __device__ const float* source() const {
    const AttentionShape& shape = a_.shape;
    const int key = shape.num_heads + kv_head();
    const int head = task_.kind == Kind::kQuery ? tile_.first_head + task_.index % tiling_.heads
                     : task_.kind == Kind::kKey ? key
                                                : key + shape.num_kv_heads;
    return a_.qkv +
           (static_cast<size_t>(task_.row) * (shape.num_heads + 2 * shape.num_kv_heads) + head) * shape.head_dim;
  }

  __device__ void store_query(const Head<kDim>& head) const {
    auto* const target = reinterpret_cast<uint16_t*>(shared_ + task_.index * kQueryBytes<kDim>);
    head.template for_each<Head<kDim>::kPadded>(lane_, [&](int column, const float2& values) {
      store_pair<kType>(target + query_column<kType>(column), values);
    });
  }

  __device__ void store(Head<kDim>& head) const {
    const bool is_value = task_.kind == Kind::kValue;
    const int in_split = task_.index % kSplitKeys, warp = in_split / kChunkKeys, key = in_split % kChunkKeys;
    __half scale = {};
    if constexpr (kHasScales<kType>) {
      scale = head.template quantise<kType>();
      if (threadIdx.x % kWarpSize == 0) {
        Layout::scales(shared_, warp, is_value)[key] = __half2float(scale) * (is_value ? kWeightScale<kType> : 1.0f);
      }
    }
    store_row<kType, kDim, Head<kDim>::kPadded>(
        lane_, head,
        shared_ + (is_value ? Layout::values(warp) : Layout::keys(warp)) + key * kCacheRowBytes<kType, kDim>);
    const int in_tile = task_.row - tile_.first_row;
    const bool is_own = in_tile >= 0 && in_tile < tile_.num_rows;
    if (!is_own || tile_.first_head != kv_head() * (a_.shape.num_heads / a_.shape.num_kv_heads)) return;
    const int cell = tile_.sequence.cell(a_, slot_of_key(tile_.sequence, tile_.mask, task_.index));
    store_in_cache<kType>(a_, lane_, head, scale, is_value ? a_.value_cache : a_.key_cache, cell, kv_head());
  }

  const PagedAttention& a_;
  const Tiling& tiling_;
  const Tile& tile_;
  const FreshRows& rows_;
  uint8_t* shared_;
  HeadLane<kDim> lane_;
  int num_queries_;
  int first_key_;  // of the pass's rows in the split
  int num_keys_;
  Task task_;
  typename Head<kDim>::Angles angles_;
};

}  // namespace pilotfish::cuda
