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
    const int row = threadIdx.x;
    if (row < a.num_rows) row_of_bit[slot_of_row(a, tile.context, row) - tile.context] = static_cast<int8_t>(row);
    __syncthreads();
  }

  __device__ bool are_made_here() const { return is_folded_; }
  /// -1: the key is in the cache.
  __device__ int row_of_key(int key) const {
    if (!is_folded_ || key < tile_.context) return -1;
    if (tile_.mask == 0) return key - tile_.context;
    return row_of_bit_[slot_of_key(tile_.context, tile_.mask, key) - tile_.context];
  }

 private:
  const Tile& tile_;
  const int8_t* row_of_bit_;
  bool is_folded_;
};

/// A head of the pass on its way into a block's shared memory, and into the cache.
struct alignas(16) FreshHead {
  enum Kind { kQuery, kKey, kValue };

  int source;  // in qkv; -1: nothing to do
  int angles;  // in cos and sin
  int target;  // in shared memory
  Kind kind;
  int key;   // of the split
  int cell;  // of the pool, -1: another block writes it
};

/// `Layout`: of the block's shared memory.
template <CacheType kType, int kDim, class Layout>
class FreshHeads {
 public:
  static constexpr int kMost = kTileQueries + 2 * kMostFoldedRows;

  /// Heads of one split: with its first one, a block makes the queries.
  __device__ FreshHeads(const PagedAttention& a, const Tile& tile, const FreshRows& rows, int split, int last_key,
                        bool with_queries, uint8_t* shared)
      : a_(a), tile_(tile), shared_(shared), lane_(a.shape), warp_(threadIdx.x / kWarpSize) {
    num_queries_ = with_queries ? tile.num_queries() : 0;
    first_key_ = max(tile.context, split * kSplitKeys);
    num_keys_ = max(min(last_key, split * kSplitKeys + kSplitKeys - 1) - first_key_ + 1, 0);
    // Every warp describes its own.
    const int index = warp_ + threadIdx.x % kWarpSize * kAttentionWarps;
    if (index < num_heads()) head(index) = index < num_queries_ ? query(index) : key(rows, index - num_queries_);
    __syncwarp();
  }

  /// Needs nothing of the predecessor.
  __device__ void begin() { plan(warp_); }

  /// After the wait for the predecessor.
  __device__ void finish() {
    for (int first = warp_; first < num_heads();) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        heads_[i] = {};  // or what the iteration before loaded keeps its registers throughout
        if (sources_[i] >= 0) heads_[i].load(lane_, a_.qkv + sources_[i]);
      }
#pragma unroll 1
      for (int i = 0; i < kAtOnce && first < num_heads(); ++i, first += kAttentionWarps) {
        if (sources_[0] >= 0) make(head(first), heads_[0], angles_[0]);
        if (first + kAttentionWarps >= num_heads()) return;
#pragma unroll
        for (int next = 1; next < kAtOnce; ++next) {
          sources_[next - 1] = sources_[next];
          heads_[next - 1] = heads_[next];
          angles_[next - 1] = angles_[next];
        }
      }
      if (first < num_heads()) plan(first);
    }
  }

 private:
  /// Heads that a warp has on their way: memory answers them together.
  static constexpr int kAtOnce = 6;

  __device__ int num_heads() const { return num_queries_ + 2 * num_keys_; }
  __device__ FreshHead& head(int index) const { return reinterpret_cast<FreshHead*>(shared_ + Layout::kHeads)[index]; }

  __device__ int source(int row, int head) const {
    return (row * (a_.shape.num_heads + 2 * a_.shape.num_kv_heads) + head) * a_.shape.head_dim;
  }
  __device__ int angles(int row) const { return __ldcg(a_.position_ids + row) * (a_.shape.rotary_dim / 2); }

  __device__ FreshHead query(int index) const {
    if (!tile_.has(index)) return {.source = -1};
    const int row = tile_.first_row + tile_.row_of(index);
    return {.source = source(row, tile_.first_head + tile_.head_of(index)),
            .angles = angles(row),
            .target = index * kQueryBytes<kDim>,
            .kind = FreshHead::kQuery};
  }

  __device__ FreshHead key(const FreshRows& rows, int index) const {
    const bool is_value = index >= num_keys_;
    const int key = first_key_ + (is_value ? index - num_keys_ : index), in_split = key % kSplitKeys;
    const int row = rows.row_of_key(key), in_tile = row - tile_.first_row;
    if (row < 0) return {.source = -1};
    const bool is_own = in_tile >= 0 && in_tile < tile_.num_rows;
    const bool writes = is_own && tile_.first_head == tile_.kv_head * tile_.tiling.group;
    const int head = a_.shape.num_heads + tile_.kv_head + (is_value ? a_.shape.num_kv_heads : 0);
    return {.source = source(row, head),
            .angles = is_value ? 0 : angles(row),
            .target = (is_value ? Layout::kValues : Layout::kKeys) + in_split * kCacheRowBytes<kType, kDim>,
            .kind = is_value ? FreshHead::kValue : FreshHead::kKey,
            .key = in_split,
            .cell = writes ? cell_of(a_, slot_of_key(tile_.context, tile_.mask, key)) : kNoKey};
  }

  /// The next kAtOnce heads of this warp.
  __device__ void plan(int first) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = first + i * kAttentionWarps;
      angles_[i] = {};  // see finish()
      sources_[i] = index < num_heads() ? head(index).source : -1;
      if (sources_[i] < 0 || head(index).kind == FreshHead::kValue) continue;
      Head<kDim>::load_angles(lane_, a_.cos + head(index).angles, a_.sin + head(index).angles, angles_[i]);
    }
  }

  __device__ void make(const FreshHead& place, Head<kDim> head, const typename Head<kDim>::Angles& angles) const {
    const bool is_query = place.kind == FreshHead::kQuery, is_value = place.kind == FreshHead::kValue;
    const float* const norm = is_query ? a_.q_norm : is_value ? a_.v_norm : a_.k_norm;
    if (norm) head.normalise(lane_, norm, a_.shape.head_dim, a_.shape.norm_epsilon);
    if (!is_value) head.rotate(lane_, angles);
    if (is_query) {
      auto* const target = reinterpret_cast<uint16_t*>(shared_ + place.target);
      head.template for_each<Head<kDim>::kPadded>(
          lane_, [&](int column, const float2& values) { store_pair(target + query_column<kType>(column), values); });
      return;
    }
    __half scale = {};
    if constexpr (kHasScales<kType>) {
      scale = head.template quantise<kType>();
      if (threadIdx.x % kWarpSize == 0) {
        Layout::scales(shared_, is_value)[place.key] = __half2float(scale) * (is_value ? kWeightScale<kType> : 1.0f);
      }
    }
    store_row<kType, kDim, Head<kDim>::kPadded>(lane_, head, shared_ + place.target);
    if (place.cell < 0) return;
    store_in_cache<kType>(a_, lane_, head, scale, is_value ? a_.value_cache : a_.key_cache, place.cell, tile_.kv_head);
  }

  const PagedAttention& a_;
  const Tile& tile_;
  uint8_t* shared_;
  HeadLane<kDim> lane_;
  int warp_;
  int num_queries_;
  int first_key_;  // of the pass's rows in the split
  int num_keys_;
  int sources_[kAtOnce];  // -1: no head
  Head<kDim> heads_[kAtOnce];
  typename Head<kDim>::Angles angles_[kAtOnce];
};

}  // namespace pilotfish::cuda
