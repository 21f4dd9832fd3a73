// Rows of logits to what sampling takes the largest of: logit + temperature * Gumbel noise, where the filters leave the
// token, in place. What follows is the greedy round.
#include "kernels.h"
#include "row_distribution.cuh"
#include "shared_noise.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kQuads = kPartLogits / 4 / kThreads;  // of a thread
static_assert(kQuads * kThreads * 4 == kPartLogits);

/// Of the likeliest token's weight, as powers of two: what weighs less is not chosen.
constexpr float kLeastWeight = -24;
/// What is filtered out comes behind everything else, and yet in order: a draft's rows give so many tokens anyway.
constexpr float kFarBehind = 1e6f;

/// One thread block a row; those of greedy sequences, which share the round, have nothing to do.
__global__ void __launch_bounds__(kRowThreads)
    find_rows_kernel(const __grid_constant__ NoisyRows noisy, const __grid_constant__ RoundMemory memory) {
  __shared__ RowShared shared;
  RowDistribution row{};
  const RoundSettings& settings = memory.settings[sequence_of_row(noisy.rows, blockIdx.x)];
  if (settings.is_greedy) return;
  const bool is_drafted = noisy.has_one_depth;  // nobody asks for the log-probability of what a draft chooses
  const bool is_number = find_distribution(noisy.rows, blockIdx.x, settings, !is_drafted, row, shared);
  if (threadIdx.x != 0) return;
  if (!is_number) memory.outcome->is_broken = 1;
  memory.rows[blockIdx.x] = row;
}

__device__ float with_noise(const RowDistribution& row, float logit, int index, float gumbel) {
  const bool can_win = is_kept(row, logit, index) && (logit - row.peak) * row.scale >= kLeastWeight;
  return can_win ? logit + gumbel : logit - kFarBehind;
}

__global__ void __launch_bounds__(kThreads)
    add_noise_kernel(const __grid_constant__ NoisyRows noisy, const __grid_constant__ RoundMemory memory) {
  const LogitRows& rows = noisy.rows;
  const RoundSettings& settings = memory.settings[sequence_of_row(rows, blockIdx.y)];
  if (settings.is_greedy) return;
  const RowDistribution row = memory.rows[blockIdx.y];
  const int depth = noisy.has_one_depth ? noisy.depth : depth_of_row(rows, noisy.position_ids, blockIdx.y);
  const int position = settings.first_position + depth;
  float* const logits = noisy.logits + static_cast<size_t>(blockIdx.y) * rows.num_logits;
  for (int i = 0; i < kQuads; ++i) {
    const int quad = blockIdx.x * (kPartLogits / 4) + i * kThreads + threadIdx.x;
    float noise[4];
    if (!noisy.logit_ids && 4 * quad < rows.num_choices) fill_noise(settings, position, quad, noise);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int index = 4 * quad + j;
      if (index >= rows.num_logits) break;
      const float logit = __ldcg(logits + index);
      if (index >= rows.num_choices) {
        logits[index] = -INFINITY;
      } else if (noisy.logit_ids) {
        logits[index] = with_noise(row, logit, index, gumbel_of(settings, position, __ldg(noisy.logit_ids + index)));
      } else {
        logits[index] = with_noise(row, logit, index, gumbel(settings, noise[j]));
      }
    }
  }
}

}  // namespace

cudaError_t launch_add_noise(const NoisyRows& noisy, const RoundMemory& memory, cudaStream_t stream) {
  const LogitRows& rows = noisy.rows;
  if (rows.num_rows < 1 || rows.num_rows > kMaxRoundRows || rows.num_choices < 1 ||
      rows.num_choices > rows.num_logits || noisy.logits != rows.logits) {
    return cudaErrorInvalidValue;
  }
  find_rows_kernel<<<rows.num_rows, kRowThreads, 0, stream>>>(noisy, memory);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  const dim3 grid(num_row_parts(rows.num_logits), rows.num_rows);
  add_noise_kernel<<<grid, kThreads, 0, stream>>>(noisy, memory);
  return cudaGetLastError();
}

}  // namespace pilotfish::cuda
