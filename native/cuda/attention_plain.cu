// Attention of layers that the tiles of tensor cores do not hold: heads of more than 256 columns or of no multiple of
// 8, ALiBi, biases by key, sinks, caches that an earlier layer has written. Three kernels, of any number of rows: heads
// are prepared, blocks share the splits of each query, and a warp adds them in their order. A query's bits depend on
// what it sees alone.
#include <algorithm>

#include "attention_plain.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kBlocksOfSm = 6;  // that share the splits, about

/// A row as one of its own sequence's pass. Padding is of no sequence.
struct PlacedRow {
  PagedAttention a;
  int row;
  bool exists = true;

  __device__ PlacedRow(const PagedAttention& pass, int row_of_pass) : a(pass), row(row_of_pass) {
    if (pass.num_seqs == 1) return;
    const int sequence = sequence_of_row(pass, row_of_pass);
    a = rows_of_sequence(pass, sequence, 0);
    row -= __ldcg(pass.seq_starts + sequence);
    exists = row < a.num_rows;
  }

  __device__ int context() const { return __ldcg(a.context_lens); }
  __device__ KeyRange keys() const { return keys_of_row(a, context(), row); }
  __device__ size_t query(int head) const { return static_cast<size_t>(row) * a.shape.num_heads + head; }
};

/// Of the rows that share the scratch: a row's number among them.
template <int kDim>
__device__ __forceinline__ Partial* parts_of(const PagedAttention& pass, int num_splits, int row, int head, int split) {
  const Partials<kDim> partials{reinterpret_cast<Partial*>(pass.partials), num_splits};
  return partials.parts(static_cast<size_t>(row) * pass.shape.num_heads + head, split);
}

/// A head of a row by a warp: queries go to a.queries, keys and values to the cache.
template <CacheType kType, int kDim>
__global__ void __launch_bounds__(kAttentionThreads)
    prepare_plain_kernel(const __grid_constant__ PagedAttention pass, int num_given) {
  let_dependents_start();
  wait_for_predecessors();
  const AttentionShape& shape = pass.shape;
  const int index = blockIdx.y * kAttentionWarps + threadIdx.x / kWarpSize;
  const PlacedRow place(pass, blockIdx.x);
  if (index >= num_given || !place.exists) return;
  const PagedAttention& a = place.a;
  const HeadLane<kDim> lane(shape);
  Head<kDim> head;
  head.load(lane, pass.qkv + (static_cast<size_t>(blockIdx.x) * num_given + index) * shape.head_dim);
  const bool is_query = index < shape.num_heads, is_value = index >= shape.num_heads + shape.num_kv_heads;
  const float* const norm = is_query ? a.q_norm : is_value ? a.v_norm : a.k_norm;
  if (norm) head.normalise(lane, norm, shape.head_dim, shape.norm_epsilon);
  if (!is_value) {
    const size_t angle = static_cast<size_t>(__ldcg(a.position_ids + place.row)) * (shape.rotary_dim / 2);
    typename Head<kDim>::Angles angles;
    head.load_angles(lane, a.cos + angle, a.sin + angle, angles);
    head.rotate(lane, angles);
  }
  if (is_query) {
    auto* const target = static_cast<uint16_t*>(a.queries) + place.query(index) * shape.head_dim;
    head.template for_each<Head<kDim>::kExisting>(
        lane, [&](int column, const float2& values) { store_pair(target + column, values); });
    return;
  }
  const int cell = cell_of(a, slot_of_row(a, place.context(), place.row));
  const int kv_head = (index - shape.num_heads) % shape.num_kv_heads;
  void* const pool = is_value ? a.value_cache : a.key_cache;
  if constexpr (kHasScales<kType>) {
    const __half scale = head.template quantise<kType>();
    if (threadIdx.x % kWarpSize == 0) *row_scale(a, pool, cell, kv_head) = scale;
  }
  store_row<kType, kDim, Head<kDim>::kExisting>(
      lane, head, static_cast<uint8_t*>(pool) + row_bytes_before<kType>(a, cell, kv_head));
}

/// A query by blocks (head, row, column), each of which takes every gridDim.z-th split.
template <CacheType kType, int kDim>
__global__ void __launch_bounds__(kAttentionThreads)
    plain_attention_kernel(const __grid_constant__ PagedAttention pass, int first_row, int num_splits) {
  __shared__ PlainSplit<kDim> shared;
  let_dependents_start();
  wait_for_predecessors();
  const PlacedRow place(pass, first_row + blockIdx.y);
  if (!place.exists) return;
  const PagedAttention& a = place.a;
  const int head = blockIdx.x, kv_head = head / (a.shape.num_heads / a.shape.num_kv_heads);
  const int warp = threadIdx.x / kWarpSize;
  const KeyRange keys = place.keys();
  const unsigned long long mask = a.tree_mask ? mask_of_row(a, place.row) : 0;
  LaneColumns<kDim> query = {};
#pragma unroll
  for (int i = 0; i < query.kGroups; ++i) {
    if (query.first(i) >= a.shape.head_dim) continue;
    const auto* const source = static_cast<const __half*>(a.queries) + place.query(head) * a.shape.head_dim;
    query.of_group[i] = floats_of(__ldcg(reinterpret_cast<const uint2*>(source) + query.first(i) / 4));
  }
  const int last = keys.last / kSplitKeys;
  for (int split = keys.first / kSplitKeys + blockIdx.z; split <= last; split += gridDim.z) {
    PlainChunk<kType, kDim> chunk(a, place.context(), mask, keys, split * kSplitKeys + warp * kChunkKeys, kv_head);
    if (chunk.has_keys()) chunk.attend(query, head);
    shared.store(warp, chunk.softmax, chunk.values);
    __syncthreads();
    shared.join_chunks(parts_of<kDim>(pass, num_splits, blockIdx.y, head, split));
    __syncthreads();  // nobody is at the chunks any more
  }
}

/// What the head's sink, a score without a value, adds to the sum of weights. `maximum`: as a power of two.
__device__ __forceinline__ float sink_weight(const PagedAttention& a, int head, float maximum) {
  return a.sinks ? power_of_two(__fmaf_rn(__ldg(a.sinks + head), kLog2E, -maximum)) : 0.0f;
}

/// Adds the splits of a query in their order, a warp 64 columns of it, and leaves their places empty.
template <int kDim>
__global__ void __launch_bounds__(kAttentionThreads)
    add_splits_kernel(const __grid_constant__ PagedAttention pass, int first_row, int num_splits) {
  __shared__ typename QueryTotal<kDim>::Factors factors[kAttentionWarps];
  let_dependents_start();
  wait_for_predecessors();
  const PlacedRow place(pass, first_row + blockIdx.y);
  if (!place.exists) return;
  const int head = blockIdx.x, warp = threadIdx.x / kWarpSize;
  const KeyRange keys = place.keys();
  const int first = keys.first / kSplitKeys, count = keys.last / kSplitKeys - first + 1;
  for (int part = warp; part < Partials<kDim>::kParts; part += kAttentionWarps) {
    QueryTotal<kDim> total;
    total.add_splits(parts_of<kDim>(pass, num_splits, blockIdx.y, head, first) + part, true, count, factors[warp]);
    const int column = part * Partial::kColumns + threadIdx.x % kWarpSize * 2;
    if (column >= pass.shape.head_dim) continue;
    const float sum = total.softmax.sum + sink_weight(place.a, head, total.softmax.maximum);
    write_result(place.a, place.query(head), column, scaled(total.values, 1 / sum));
  }
}

template <CacheType kType, int kDim>
cudaError_t launch(const PagedAttention& a, cudaStream_t stream) {
  const int num_splits = max_splits(a.max_blocks, a.block_size), num_heads = a.shape.num_heads;
  const int num_given = a.shape.num_given();
  const dim3 all_heads(a.num_rows, (num_given + kAttentionWarps - 1) / kAttentionWarps);
  cudaError_t status =
      launch_early(prepare_plain_kernel<kType, kDim>, all_heads, kAttentionThreads, 0, stream, a, num_given);
  // As many rows at a time as the scratch has room for.
  for (int first = 0; first < a.num_rows && status == cudaSuccess; first += kMaxSplitRows) {
    const int num_rows = std::min(a.num_rows - first, kMaxSplitRows);
    const int num_columns = std::clamp(a.num_sms * kBlocksOfSm / (num_rows * num_heads), 1, num_splits);
    status = launch_early(plain_attention_kernel<kType, kDim>, dim3(num_heads, num_rows, num_columns),
                          kAttentionThreads, 0, stream, a, first, num_splits);
    if (status != cudaSuccess) break;
    status = launch_early(add_splits_kernel<kDim>, dim3(num_heads, num_rows), kAttentionThreads, 0, stream, a, first,
                          num_splits);
  }
  return status;
}

}  // namespace

cudaError_t launch_plain_attention(const PagedAttention& a, cudaStream_t stream) {
  return for_cache_type(a.cache_type, [&]<CacheType kType>() {
    // Of as many parts as attention_partial_bytes() counts.
    const int width = padded_head_dim(a.shape.head_dim);
    if (width <= 64) return launch<kType, 64>(a, stream);
    if (width <= 128) return launch<kType, 128>(a, stream);
    return width <= kMaxTiledHeadDim ? launch<kType, kMaxTiledHeadDim>(a, stream)
                                     : launch<kType, kMaxHeadDim>(a, stream);
  });
}

}  // namespace pilotfish::cuda
