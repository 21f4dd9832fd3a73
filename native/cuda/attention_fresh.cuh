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
    static_assert(kMostFoldedRows <= kWarpSize, "a lane knows a row, and a key");
    num_queries_ = with_queries ? tile.num_rows * tiling.heads : 0;
    first_key_ = max(tile.sequence.context, split * kSplitKeys);
    num_keys_ = max(min(last_key, split * kSplitKeys + kSplitKeys - 1) - first_key_ + 1, 0);
    const int lane = threadIdx.x % kWarpSize;
    if (lane < a.num_rows) position_ = __ldcg(a.position_ids + lane);
    if (lane < num_keys_) cell_ = tile.sequence.cell(a, slot_of_key(tile.sequence, tile.mask, first_key_ + lane));
  }

  /// Needs nothing of the predecessor.
  __device__ void begin() { plan(threadIdx.x / kWarpSize); }

  /// After the wait for the predecessor.
  __device__ void finish() {
    for (int first = threadIdx.x / kWarpSize; first < num_heads();) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (sources_[i]) heads_[i].load(lane_, sources_[i]);
      }
#pragma unroll 1
      for (int i = 0; i < kAtOnce && first < num_heads(); ++i, first += kAttentionWarps) {
        make(task(first), heads_[0], angles_[0]);
#pragma unroll
        for (int next = 1; next < kAtOnce; ++next) {
          heads_[next - 1] = heads_[next];
          angles_[next - 1] = angles_[next];
        }
      }
      if (first < num_heads()) plan(first);
    }
  }

 private:
  enum class Kind { kNone, kQuery, kKey, kValue };
  struct Task {
    Kind kind;
    int row;    // of the pass
    int index;  // query of the tile, or key
  };
  /// Heads that a warp has on their way: memory answers them together.
  static constexpr int kAtOnce = 6;

  __device__ int num_heads() const { return num_queries_ + 2 * num_keys_; }

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

  /// The next kAtOnce heads of this warp.
  __device__ void plan(int first) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      sources_[i] = nullptr;
      const Task next = task(first + i * kAttentionWarps);
      if (next.kind == Kind::kNone) continue;
      sources_[i] = source(next);
      if (next.kind == Kind::kValue) continue;
      const size_t angle = static_cast<size_t>(__shfl_sync(~0u, position_, next.row)) * (a_.shape.rotary_dim / 2);
      Head<kDim>::load_angles(lane_, a_.cos + angle, a_.sin + angle, angles_[i]);
    }
  }

  __device__ void make(const Task& task, Head<kDim> head, const typename Head<kDim>::Angles& angles) const {
    if (task.kind == Kind::kNone) return;
    if (task.kind != Kind::kValue) {
      const float* const norm = task.kind == Kind::kQuery ? a_.q_norm : a_.k_norm;
      if (norm) head.normalise(lane_, norm, a_.shape.head_dim, a_.shape.norm_epsilon);
      head.rotate(lane_, angles);
    }
    task.kind == Kind::kQuery ? store_query(task, head) : store(task, head);
  }

  __device__ const float* source(const Task& task) const {
    const AttentionShape& shape = a_.shape;
    const int key = shape.num_heads + tile_.kv_head;
    const int head = task.kind == Kind::kQuery ? tile_.first_head + task.index % tiling_.heads
                     : task.kind == Kind::kKey ? key
                                               : key + shape.num_kv_heads;
    return a_.qkv +
           (static_cast<size_t>(task.row) * (shape.num_heads + 2 * shape.num_kv_heads) + head) * shape.head_dim;
  }

  __device__ void store_query(const Task& task, const Head<kDim>& head) const {
    auto* const target = reinterpret_cast<uint16_t*>(shared_ + task.index * kQueryBytes<kDim>);
    head.template for_each<Head<kDim>::kPadded>(lane_, [&](int column, const float2& values) {
      store_pair<kType>(target + query_column<kType>(column), values);
    });
  }

  __device__ void store(const Task& task, Head<kDim>& head) const {
    const bool is_value = task.kind == Kind::kValue;
    const int key = task.index % kSplitKeys;  // of the split
    __half scale = {};
    if constexpr (kHasScales<kType>) {
      scale = head.template quantise<kType>();
      if (threadIdx.x % kWarpSize == 0) {
        Layout::scales(shared_, is_value)[key] = __half2float(scale) * (is_value ? kWeightScale<kType> : 1.0f);
      }
    }
    store_row<kType, kDim, Head<kDim>::kPadded>(
        lane_, head, shared_ + (is_value ? Layout::kValues : Layout::kKeys) + key * kCacheRowBytes<kType, kDim>);
    const int cell = __shfl_sync(~0u, cell_, task.index - first_key_);
    const int in_tile = task.row - tile_.first_row;
    const bool is_own = in_tile >= 0 && in_tile < tile_.num_rows;
    if (!is_own || tile_.first_head != tile_.kv_head * (a_.shape.num_heads / a_.shape.num_kv_heads)) return;
    store_in_cache<kType>(a_, lane_, head, scale, is_value ? a_.value_cache : a_.key_cache, cell, tile_.kv_head);
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
  int position_ = 0;               // of the lane's row of the pass
  int cell_ = 0;                   // of the lane's key, from first_key_ on
  const float* sources_[kAtOnce];  // null: no head
  Head<kDim> heads_[kAtOnce];
  typename Head<kDim>::Angles angles_[kAtOnce];
};

}  // namespace pilotfish::cuda
