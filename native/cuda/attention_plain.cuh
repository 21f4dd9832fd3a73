// Attention in f32, without tensor cores, of a row and a query head: what a warp makes of 32 keys, and how a block's
// warps join to a split of 128. Any head up to kMaxHeadDim, with or without ALiBi.
#pragma once

#include "attention_head.cuh"
#include "attention_partials.cuh"
#include "attention_tile.cuh"

namespace pilotfish::cuda {

/// Four columns a lane in each group of 128, as they lie beside each other in a row.
template <int kDim>
struct LaneColumns {
  static constexpr int kGroups = HeadLane<kDim>::kGroups;

  float4 of_group[kGroups];

  __device__ static int first(int group) { return 4 * (static_cast<int>(threadIdx.x) % kWarpSize + group * kWarpSize); }
};

__device__ __forceinline__ float4 floats_of(const uint2& halves) {
  const float2 a = __half22float2(reinterpret_cast<const __half2&>(halves.x));
  const float2 b = __half22float2(reinterpret_cast<const __half2&>(halves.y));
  return make_float4(a.x, a.y, b.x, b.y);
}

/// A cache's bytes are integers plus 128.
__device__ __forceinline__ float4 integers_of(uint32_t bytes) {
  const auto integer = [&](int i) { return static_cast<float>(static_cast<int>(bytes >> 8 * i & 255) - 128); };
  return make_float4(integer(0), integer(1), integer(2), integer(3));
}

/// Where a row of the cache begins in its pool. `cell`: slot of the pool.
template <CacheType kType>
__device__ __forceinline__ size_t row_bytes_before(const PagedAttention& a, int cell, int kv_head) {
  const size_t rows = static_cast<size_t>(row_index(a, cell, kv_head)) * a.shape.head_dim * kElementBytes<kType>;
  if constexpr (!kHasScales<kType>) return rows;
  // Behind the bytes of each block before it are their scales.
  return rows + static_cast<size_t>(block_of(a, cell)) * a.block_size * a.shape.num_kv_heads * sizeof(__half);
}

/// Bytes come as integers: their scale is for the caller.
template <CacheType kType, int kDim>
__device__ __forceinline__ LaneColumns<kDim> load_row(const PagedAttention& a, const void* pool, int cell,
                                                      int kv_head) {
  const uint8_t* const row = static_cast<const uint8_t*>(pool) + row_bytes_before<kType>(a, cell, kv_head);
  LaneColumns<kDim> columns = {};
#pragma unroll
  for (int i = 0; i < columns.kGroups; ++i) {
    const int first = columns.first(i);
    if (first >= a.shape.head_dim) continue;
    if constexpr (kHasScales<kType>) {
      columns.of_group[i] = integers_of(__ldcg(reinterpret_cast<const uint32_t*>(row + first)));
    } else {
      columns.of_group[i] = floats_of(__ldcg(reinterpret_cast<const uint2*>(row) + first / 4));
    }
  }
  return columns;
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value = __fadd_rn(value, __shfl_xor_sync(~0u, value, offset));
  }
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  }
  return value;
}

/// A warp's chunk of 32 keys, one a lane. Every sum has an order of its own: products of a score over a lane's columns,
/// then over the lanes; values in the order of the keys.
template <CacheType kType, int kDim>
class PlainChunk {
  using Columns = LaneColumns<kDim>;

 public:
  Softmax softmax;
  Columns values = {};  // their weighted sum

  /// `mask`: the row's of a tree, or 0. `keys`: all that the row sees.
  __device__ PlainChunk(const PagedAttention& a, int context, unsigned long long mask, const KeyRange& keys,
                        int first_key, int kv_head)
      : a_(a), kv_head_(kv_head), first_(max(keys.first - first_key, 0)), last_(min(keys.last - first_key, 31)) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    is_seen_ = lane >= first_ && lane <= last_;
    cell_ = is_seen_ ? cell_of(a, slot_of_key(context, mask, first_key + lane)) : 0;
    distance_ = static_cast<float>(keys.last - first_key - lane);
    position_ = first_key + lane;
    __syncwarp();
  }

  __device__ bool has_keys() const { return first_ <= last_; }

  __device__ void attend(const Columns& query, int head) {
    const float exponent = score(query, head);
    softmax.maximum = warp_max(exponent);
    float weight = is_seen_ ? power_of_two(__fadd_rn(exponent, -softmax.maximum)) : 0.0f;
    softmax.sum = warp_sum(weight);
    if constexpr (kHasScales<kType>) weight = __fmul_rn(weight, scale_of(a_.value_cache));
    for_each_key(a_.value_cache, [&](int key, bool exists, const Columns& value) {
      const float its_weight = exists ? __shfl_sync(~0u, weight, key) : 0.0f;
      add(its_weight, value);
    });
  }

 private:
  static constexpr int kAtOnce = 4;  // rows: memory answers them together

  /// Calls work(key of the chunk, whether it exists, its row), in their order; the last row again in place of those
  /// behind it.
  template <class Work>
  __device__ void for_each_key(const void* pool, const Work& work) const {
#pragma unroll 1
    for (int first = first_; first <= last_; first += kAtOnce) {
      Columns rows[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        rows[i] = load_row<kType, kDim>(a_, pool, __shfl_sync(~0u, cell_, min(first + i, last_)), kv_head_);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) work(min(first + i, last_), first + i <= last_, rows[i]);
    }
  }

  /// Of this lane's key, as a power of two; -inf where nobody sees it.
  __device__ float score(const Columns& query, int head) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    float mine = 0;
    for_each_key(a_.key_cache, [&](int key, bool exists, const Columns& row) {
      const float sum = warp_sum(product(query, row));
      if (exists && key == lane) mine = sum;
    });
    if (!is_seen_) return -INFINITY;
    if constexpr (kHasScales<kType>) mine = __fmul_rn(mine, scale_of(a_.key_cache));
    mine = __fmul_rn(mine, a_.shape.scale);
    if (a_.shape.softcap != 0) mine = __fmul_rn(a_.shape.softcap, tanhf(__fdiv_rn(mine, a_.shape.softcap)));
    if (a_.slopes) mine = __fmaf_rn(-__ldg(a_.slopes + head), distance_, mine);
    if (a_.key_biases) mine = __fadd_rn(mine, __ldg(a_.key_biases + position_ * a_.shape.num_heads + head));
    return __fmul_rn(mine, kLog2E);
  }

  __device__ float scale_of(void* pool) const {
    return is_seen_ ? __half2float(__ldcg(row_scale(a_, pool, cell_, kv_head_))) : 0.0f;
  }

  __device__ static float product(const Columns& query, const Columns& row) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Columns::kGroups; ++i) {
      const float4 &q = query.of_group[i], &k = row.of_group[i];
      sum = __fmaf_rn(q.w, k.w, __fmaf_rn(q.z, k.z, __fmaf_rn(q.y, k.y, __fmaf_rn(q.x, k.x, sum))));
    }
    return sum;
  }

  __device__ void add(float weight, const Columns& value) {
#pragma unroll
    for (int i = 0; i < Columns::kGroups; ++i) {
      float4& sum = values.of_group[i];
      const float4& v = value.of_group[i];
      sum = make_float4(__fmaf_rn(weight, v.x, sum.x), __fmaf_rn(weight, v.y, sum.y), __fmaf_rn(weight, v.z, sum.z),
                        __fmaf_rn(weight, v.w, sum.w));
    }
  }

  const PagedAttention& a_;
  int kv_head_;
  int first_, last_;  // keys of the chunk that the row sees
  bool is_seen_;      // this lane's
  int cell_;
  float distance_;  // of this lane's key from the row
  int position_;    // of it
};

/// The chunks of a split on their way to one result, in shared memory.
template <int kDim>
struct PlainSplit {
  alignas(16) float values[kSplitChunks][kDim];
  Softmax softmax[kSplitChunks];

  __device__ void store(int chunk, const Softmax& its_softmax, const LaneColumns<kDim>& columns) {
#pragma unroll
    for (int i = 0; i < columns.kGroups; ++i) {
      if (columns.first(i) >= kDim) continue;
      *reinterpret_cast<float4*>(&values[chunk][columns.first(i)]) = columns.of_group[i];
    }
    if (threadIdx.x % kWarpSize == 0) softmax[chunk] = its_softmax;
  }

  /// By all threads of the block, to the split's parts.
  __device__ void join_chunks(Partial* parts) const {
    for (int column = 2 * threadIdx.x; column < kDim; column += 2 * kAttentionThreads) {
      Softmax total;
      float2 sums = {};
#pragma unroll
      for (int i = 0; i < kSplitChunks; ++i) {
        const Join factors = join(total, softmax[i]);
        const float2 part = *reinterpret_cast<const float2*>(&values[i][column]);
        sums = make_float2(joined(factors, sums.x, part.x), joined(factors, sums.y, part.y));
      }
      Partial& part = parts[column / Partial::kColumns];
      part.sums[column % Partial::kColumns / 2] = sums;
      if (column % Partial::kColumns == 0) part.softmax = make_float4(total.maximum, total.sum, 0, 0);
    }
  }
};

}  // namespace pilotfish::cuda
