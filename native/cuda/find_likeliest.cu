// The few largest logits of rows, the lowest index first among equals, and the logarithm of the sum of their exp. A
// thread block looks at a piece of a row; the last one to end joins the pieces, a warp a row.
#include <climits>
#include <cmath>

#include "kernels.h"
#include "round_kernels.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kLogits = kPartLogits / kThreads;  // of a thread
constexpr float kNothing = -INFINITY;

struct Entry {
  float value = kNothing;
  int index = INT_MAX;

  __device__ bool is_before(const Entry& other) const {
    return value > other.value || (value == other.value && index < other.index);
  }
};

__device__ Entry first_of_warp(Entry entry) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const Entry other{__shfl_xor_sync(~0u, entry.value, offset), __shfl_xor_sync(~0u, entry.index, offset)};
    if (other.is_before(entry)) entry = other;
  }
  return entry;
}

/// Every thread returns the first of the block's entries.
__device__ Entry first_of_block(Entry entry, Entry* of_warps) {
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  entry = first_of_warp(entry);
  __syncthreads();  // of_warps may still be read
  if (lane == 0) of_warps[warp] = entry;
  __syncthreads();
  return first_of_warp(lane < kWarps ? of_warps[lane] : Entry{});
}

__device__ void find_in_part(const LogitRows& rows, int row, int part, LikelyRow& out) {
  __shared__ Entry of_warps[kWarps];
  __shared__ float sums[kWarps];
  const float* const logits = rows.logits + static_cast<size_t>(row) * rows.num_logits;
  Entry entries[kLogits];
#pragma unroll
  for (int i = 0; i < kLogits; ++i) {
    const int index = part * kPartLogits + i * kThreads + threadIdx.x;
    if (index < rows.num_choices) entries[i] = {__ldcg(logits + index), index};
  }
  float peak = kNothing, sum = 0;
  for (int rank = 0; rank < kMostLikely; ++rank) {
    Entry mine;
#pragma unroll
    for (int i = 0; i < kLogits; ++i) {
      if (entries[i].is_before(mine)) mine = entries[i];
    }
    const Entry first = first_of_block(mine, of_warps);
    if (rank == 0) {
      peak = first.value;
#pragma unroll
      for (int i = 0; i < kLogits; ++i) sum += entries[i].value == kNothing ? 0.0f : expf(entries[i].value - peak);
    }
#pragma unroll
    for (int i = 0; i < kLogits; ++i) {
      if (entries[i].index == first.index) entries[i] = {};
    }
    if (threadIdx.x == 0) out.logits[rank] = first.value, out.indices[rank] = first.index;
  }
  sum = sum_of_warp(sum);
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp];
  out.log_sum = sum > 0 ? peak + logf(sum) : kNothing;
}

/// By one warp. A lane goes through the lists of every 32nd part.
__device__ void join(const LikelyRow* parts, int num_parts, LikelyRow& out) {
  const int lane = threadIdx.x % kWarpSize;
  float peak = kNothing;
  for (int part = lane; part < num_parts; part += kWarpSize) peak = fmaxf(peak, __ldcg(&parts[part].log_sum));
  peak = peak_of_warp(peak);
  float sum = 0;
  for (int part = lane; part < num_parts; part += kWarpSize) sum += expf(__ldcg(&parts[part].log_sum) - peak);
  sum = sum_of_warp(sum);
  Entry last{INFINITY, -1};
  for (int rank = 0; rank < kMostLikely; ++rank) {
    Entry mine;
    for (int part = lane; part < num_parts; part += kWarpSize) {
      for (int i = 0; i < kMostLikely; ++i) {
        const Entry entry{__ldcg(&parts[part].logits[i]), __ldcg(&parts[part].indices[i])};
        if (!last.is_before(entry)) continue;
        if (entry.is_before(mine)) mine = entry;
        break;
      }
    }
    last = first_of_warp(mine);
    if (lane == 0) out.logits[rank] = last.value, out.indices[rank] = last.index;
  }
  if (lane == 0) out.log_sum = peak + logf(sum);
}

__global__ void __launch_bounds__(kThreads)
    find_likeliest_kernel(const __grid_constant__ LogitRows rows, LikelyRow* parts, int* arrivals, LikelyRow* out) {
  const int num_parts = gridDim.x, row = blockIdx.y;
  find_in_part(rows, row, blockIdx.x, parts[row * num_parts + blockIdx.x]);
  if (!is_last_block(arrivals, gridDim.x * gridDim.y)) return;
  for (int r = threadIdx.x / kWarpSize; r < rows.num_rows; r += kWarps) join(parts + r * num_parts, num_parts, out[r]);
}

}  // namespace

cudaError_t launch_find_likeliest(const LogitRows& rows, const LikelyMemory& memory, cudaStream_t stream) {
  if (rows.num_rows < 1 || rows.num_rows > kMaxRoundRows || rows.num_choices < 1) return cudaErrorInvalidValue;
  const dim3 grid(num_row_parts(rows.num_choices), rows.num_rows);
  find_likeliest_kernel<<<grid, kThreads, 0, stream>>>(rows, memory.parts, memory.arrivals, memory.rows);
  return cudaGetLastError();
}

}  // namespace pilotfish::cuda
