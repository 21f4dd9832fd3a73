// The likeliest token of rows of logits, the lowest id among equals, with its log probability. A thread block looks at
// a piece of a row; the last one to end joins the pieces, in their order.
#include <climits>
#include <cmath>

#include "kernels.h"
#include "round_kernels.cuh"
#include "shared_noise.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kLogits = kPartLogits / kThreads;  // of a thread
constexpr float kNothing = -INFINITY;
constexpr int kNoIndex = INT_MAX;

struct Best {
  float value = kNothing;
  int index = kNoIndex;

  __device__ void take(float other, int other_index) {
    if (other > value || (other == value && other_index < index)) value = other, index = other_index;
  }
};

__device__ Best best_of_warp(Best best) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const float value = __shfl_xor_sync(~0u, best.value, offset);
    const int index = __shfl_xor_sync(~0u, best.index, offset);
    best.take(value, index);
  }
  return best;
}

/// Thread 0 returns the part.
__device__ RowPart look_at_part(const LogitRows& rows, int row, int part) {
  __shared__ Best bests[kWarps];
  __shared__ float peaks[kWarps], sums[kWarps];
  const float* const logits = rows.logits + static_cast<size_t>(row) * rows.num_logits;
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  float values[kLogits];
  Best best;
  float peak = kNothing;
#pragma unroll
  for (int i = 0; i < kLogits; ++i) {
    const int index = part * kPartLogits + i * kThreads + threadIdx.x;
    values[i] = index < rows.num_logits ? __ldcg(logits + index) : kNothing;
    if (index < rows.num_choices) best.take(values[i], index);
    peak = fmaxf(peak, values[i]);
  }
  best = best_of_warp(best);
  peak = peak_of_warp(peak);
  if (lane == 0) bests[warp] = best, peaks[warp] = peak;
  __syncthreads();
  best = best_of_warp(lane < kWarps ? bests[lane] : Best{});
  peak = peak_of_warp(lane < kWarps ? peaks[lane] : kNothing);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLogits; ++i) sum += values[i] == kNothing ? 0.0f : expf(values[i] - peak);
  sum = sum_of_warp(sum);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  sum = sum_of_warp(lane < kWarps ? sums[lane] : 0.0f);
  return {best.value, best.index, peak, sum};
}

/// By one warp; every lane returns the whole.
__device__ RowPart join_parts(const RowPart* parts, int num_parts) {
  const int lane = threadIdx.x % kWarpSize;
  Best best;
  float peak = kNothing;
  for (int part = lane; part < num_parts; part += kWarpSize) {
    best.take(__ldcg(&parts[part].best), __ldcg(&parts[part].index));
    peak = fmaxf(peak, __ldcg(&parts[part].peak));
  }
  best = best_of_warp(best);
  peak = peak_of_warp(peak);
  float sum = 0;
  for (int part = lane; part < num_parts; part += kWarpSize) {
    const float part_peak = __ldcg(&parts[part].peak);
    if (part_peak != kNothing) sum += __ldcg(&parts[part].sum) * expf(part_peak - peak);
  }
  return {best.value, best.index, peak, sum_of_warp(sum)};
}

/// The log probability of a chosen token, by its logit before the noise.
__device__ float without_noise(const TargetChoice& choice, const RoundMemory& memory, int row, int id, float noisy) {
  const RoundSettings& settings = memory.settings[sequence_of_row(choice.rows, row)];
  const int position = settings.first_position + depth_of_row(choice.rows, choice.position_ids, row);
  return noisy - gumbel_of(settings, position, id) - memory.rows[row].log_sum;
}

__device__ bool has_noise(const TargetChoice& choice, const RoundMemory& memory, int row) {
  return choice.is_noisy && memory.settings[sequence_of_row(choice.rows, row)].is_greedy == 0;
}

template <class Choice>
__global__ void __launch_bounds__(kThreads)
    choose_likeliest_kernel(const __grid_constant__ Choice choice, const __grid_constant__ RoundMemory memory) {
  wait_for_predecessors();  // what follows starts when this has ended: passes read ahead
  const LogitRows& rows = choice.rows;
  const int num_parts = gridDim.x, row = blockIdx.y, part = blockIdx.x;
  const RowPart mine = look_at_part(rows, row, part);
  if (threadIdx.x == 0) memory.parts[row * num_parts + part] = mine;
  if (!is_last_block(memory.arrivals, gridDim.x * gridDim.y)) return;
  for (int r = threadIdx.x / kWarpSize; r < rows.num_rows; r += kWarps) {
    const RowPart whole = join_parts(memory.parts + r * num_parts, num_parts);
    if (threadIdx.x % kWarpSize != 0) continue;
    const bool is_number = isfinite(whole.sum) && isfinite(whole.best);
    if (!is_number) memory.outcome->is_broken = 1;
    const int index = is_number ? whole.index : 0;
    const float logprob = whole.best - whole.peak - logf(whole.sum);
    if constexpr (requires { choice.step; }) {
      finish(choice, memory, r, index, expf(logprob));
    } else {
      memory.outcome->chosen_ids[r] = index;
      memory.outcome->logprobs[r] =
          has_noise(choice, memory, r) ? without_noise(choice, memory, r, index, whole.best) : logprob;
    }
  }
  if constexpr (!requires { choice.step; }) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) finish(choice, memory);
  }
}

template <class Choice>
cudaError_t launch(const Choice& choice, const RoundMemory& memory, cudaStream_t stream) {
  const LogitRows& rows = choice.rows;
  if (rows.num_rows < 1 || rows.num_rows > kMaxRoundRows || rows.num_choices < 1) return cudaErrorInvalidValue;
  const dim3 grid(num_row_parts(rows.num_logits), rows.num_rows);
  return launch_early(choose_likeliest_kernel<Choice>, grid, kThreads, 0, stream, choice, memory);
}

}  // namespace

cudaError_t launch_choose_likeliest(const DraftStep& step, const RoundMemory& memory, cudaStream_t stream) {
  return launch(step, memory, stream);
}

cudaError_t launch_choose_likeliest(const TargetChoice& choice, const RoundMemory& memory, cudaStream_t stream) {
  return launch(choice, memory, stream);
}

}  // namespace pilotfish::cuda
