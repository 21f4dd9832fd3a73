// What comes before attention of many rows: per-head RMSNorm, rotary embedding, the write of keys and values into the
// paged cache. One warp a head of a row. Attention of few rows does it itself.
#include "attention_head.cuh"
#include "attention_tile.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kWarps = 4;

/// A head of a row of one sequence, by a warp.
template <CacheType kType, int kDim>
__device__ void prepare_head(const PagedAttention& a, int row, int index) {
  const AttentionShape& shape = a.shape;
  const int num_columns = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  const HeadLane<kDim> lane(shape);
  Head<kDim> head;
  head.load(lane, a.qkv + static_cast<size_t>(row) * num_columns + index * shape.head_dim);

  const bool is_query = index < shape.num_heads, is_value = index >= shape.num_heads + shape.num_kv_heads;
  const float* norm = is_query ? a.q_norm : is_value ? a.v_norm : a.k_norm;
  if (norm) head.normalise(lane, norm, shape.head_dim, shape.norm_epsilon);
  if (!is_value) {
    const size_t angle = static_cast<size_t>(__ldcg(a.position_ids + row)) * (shape.rotary_dim / 2);
    typename Head<kDim>::Angles angles;
    head.load_angles(lane, a.cos + angle, a.sin + angle, angles);
    head.rotate(lane, angles);
  }
  if (is_query) {
    auto* const target =
        static_cast<uint16_t*>(a.queries) + (static_cast<size_t>(row) * shape.num_heads + index) * shape.head_dim;
    head.template for_each<Head<kDim>::kExisting>(
        lane, [&](int column, const float2& values) { store_pair(target + query_column<kType>(column), values); });
    return;
  }
  const int cell = cell_of(a, slot_of_row(a, __ldcg(a.context_lens), row));
  const int kv_head = (index - shape.num_heads) % shape.num_kv_heads;
  __half scale = {};
  if constexpr (kHasScales<kType>) scale = head.template quantise<kType>();
  store_in_cache<kType>(a, lane, head, scale, is_value ? a.value_cache : a.key_cache, cell, kv_head);
}

template <CacheType kType, int kDim, bool kIsShared>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    attention_prepare_kernel(const __grid_constant__ PagedAttention pass) {
  let_dependents_start();
  wait_for_predecessors();
  const int row = blockIdx.x, index = blockIdx.y * kWarps + threadIdx.x / kWarpSize;
  if (index >= pass.shape.num_heads + 2 * pass.shape.num_kv_heads) return;
  if constexpr (kIsShared) {
    const int sequence = sequence_of_row(pass, row);
    const PagedAttention a = rows_of_sequence(pass, sequence, 0);
    const int its_row = row - __ldcg(pass.seq_starts + sequence);
    if (a.num_rows > kMostFoldedRows && its_row < a.num_rows) prepare_head<kType, kDim>(a, its_row, index);
  } else {
    prepare_head<kType, kDim>(pass, row, index);
  }
}

}  // namespace

cudaError_t launch_attention_prepare(const PagedAttention& attention, cudaStream_t stream) {
  const int num_heads = attention.shape.num_heads + 2 * attention.shape.num_kv_heads;
  const dim3 grid(attention.num_rows, (num_heads + kWarps - 1) / kWarps);
  return for_cache(attention, [&]<CacheType kType, int kDim>() {
    const auto kernel = attention.num_seqs > 1 ? attention_prepare_kernel<kType, kDim, true>
                                               : attention_prepare_kernel<kType, kDim, false>;
    return launch_early(kernel, grid, kWarps * kWarpSize, 0, stream, attention);
  });
}

}  // namespace pilotfish::cuda
