// What comes before attention: per-head RMSNorm, rotary embedding, the write of keys and values into the paged cache.
// One warp a head of a row.
#include "attention_rows.cuh"
#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {
namespace {

constexpr int kWarps = 4;

/// One head in shared memory, of one warp.
class Head {
 public:
  __device__ Head(float* values, int head_dim) : values_(values), head_dim_(head_dim), lane_(threadIdx.x % kWarpSize) {}

  __device__ void load(const float* source) const {
    for (int d = lane_; d < head_dim_; d += kWarpSize) values_[d] = __ldcg(source + d);
    __syncwarp();
  }
  __device__ void normalise(const float* weight, float epsilon) const {
    float squares = 0;
    for (int d = lane_; d < head_dim_; d += kWarpSize) squares = fmaf(values_[d], values_[d], squares);
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) squares += __shfl_xor_sync(~0u, squares, offset);
    const float inverse = rsqrtf(squares / static_cast<float>(head_dim_) + epsilon);
    for (int d = lane_; d < head_dim_; d += kWarpSize) values_[d] *= inverse * __ldg(weight + d);
    __syncwarp();
  }
  /// cos, sin: [rotary_dim / 2] of the row's position.
  __device__ void rotate(const float* cos, const float* sin, int rotary_dim, bool is_interleaved) const {
    const int half = rotary_dim / 2;
    for (int i = lane_; i < half; i += kWarpSize) {
      float& first = values_[is_interleaved ? 2 * i : i];
      float& second = values_[is_interleaved ? 2 * i + 1 : half + i];
      const float c = __ldg(cos + i), s = __ldg(sin + i), a = first, b = second;
      first = a * c - b * s;
      second = b * c + a * s;
    }
    __syncwarp();
  }
  __device__ void store(__half* target) const {
    for (int d = lane_; d < head_dim_; d += kWarpSize) target[d] = saturated_half(values_[d]);
  }

 private:
  float* values_;
  int head_dim_;
  int lane_;
};

__global__ void __launch_bounds__(kWarps* kWarpSize)
    attention_prepare_kernel(const __grid_constant__ PagedAttention a) {
  __shared__ float heads[kWarps][kMaxHeadDim];
  let_dependents_start();
  wait_for_predecessors();
  const AttentionShape& shape = a.shape;
  const int warp = threadIdx.x / kWarpSize, row = blockIdx.x, index = blockIdx.y * kWarps + warp;
  if (index >= shape.num_heads + 2 * shape.num_kv_heads) return;
  const int num_columns = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  const Head head(heads[warp], shape.head_dim);
  head.load(a.qkv + static_cast<size_t>(row) * num_columns + index * shape.head_dim);

  const bool is_query = index < shape.num_heads, is_value = index >= shape.num_heads + shape.num_kv_heads;
  if (!is_value) {
    const float* norm = is_query ? a.q_norm : a.k_norm;
    if (norm) head.normalise(norm, shape.norm_epsilon);
    const size_t angle = static_cast<size_t>(__ldcg(a.position_ids + row)) * (shape.rotary_dim / 2);
    head.rotate(a.cos + angle, a.sin + angle, shape.rotary_dim, shape.is_interleaved);
  }
  if (is_query) {
    const size_t at = (static_cast<size_t>(row) * shape.num_heads + index) * shape.head_dim;
    head.store(static_cast<__half*>(a.queries) + at);
  } else {
    const SequenceRows sequence = sequence_of_row(a, row);
    const size_t cell = sequence.cell(a, slot_of_row(a, sequence, row));
    const int kv_head = (index - shape.num_heads) % shape.num_kv_heads;
    auto* const cache = static_cast<__half*>(is_value ? a.value_cache : a.key_cache);
    head.store(cache + (cell * shape.num_kv_heads + kv_head) * shape.head_dim);
  }
}

}  // namespace

cudaError_t launch_attention_prepare(const PagedAttention& attention, cudaStream_t stream) {
  if (!is_valid(attention)) return cudaErrorInvalidValue;
  const int num_heads = attention.shape.num_heads + 2 * attention.shape.num_kv_heads;
  const dim3 grid(attention.num_rows, (num_heads + kWarps - 1) / kWarps);
  return launch_early(attention_prepare_kernel, grid, kWarps * kWarpSize, 0, stream, attention);
}

}  // namespace pilotfish::cuda
