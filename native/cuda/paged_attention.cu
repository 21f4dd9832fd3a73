// Sizes of attention's scratch and the choice of kernels. Host arithmetic only.
#include "attention_partials.cuh"
#include "attention_tile.cuh"

namespace pilotfish::cuda {

size_t attention_partial_bytes(const AttentionShape& shape, int max_rows, int max_blocks, int block_size) {
  const int num_rows = max_rows < kMaxSplitRows ? max_rows : kMaxSplitRows;
  const size_t num_partials = static_cast<size_t>(num_rows) * shape.num_heads * max_splits(max_blocks, block_size);
  return num_partials * Partial::num_parts(padded_head_dim(shape.head_dim)) * sizeof(Partial);
}

cudaError_t launch_paged_attention(const PagedAttention& attention, cudaStream_t stream) {
  if (!is_valid(attention)) return cudaErrorInvalidValue;
  if (!is_tiled(attention)) return launch_plain_attention(attention, stream);
  if (most_rows_of_sequence(attention) > kMostFoldedRows) {
    const cudaError_t status = launch_attention_prepare(attention, stream);
    if (status != cudaSuccess) return status;
  }
  return attention.num_rows <= kMaxSplitRows ? launch_split_attention(attention, stream)
                                             : launch_prefill_attention(attention, stream);
}

}  // namespace pilotfish::cuda
