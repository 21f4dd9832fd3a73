// What the kernels of a round share: the order of logits, and how a choice goes on.
#pragma once

#include "common.cuh"
#include "device/round_kernels.h"

namespace pilotfish::cuda {

/// Unsigned numbers in the order of the floats.
__device__ __forceinline__ uint32_t order_of(float value) {
  const uint32_t bits = __float_as_uint(value);
  return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}

__device__ __forceinline__ bool is_kept(const RowDistribution& row, float logit, int index) {
  const uint32_t order = order_of(logit);
  return order > row.least || (order == row.least && index <= row.last);
}

/// Relative to the likeliest token.
__device__ __forceinline__ float weight_of(const RowDistribution& row, float logit) {
  return exp2f((logit - row.peak) * row.scale);
}

/// Every lane gets them.
__device__ __forceinline__ float peak_of_warp(float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

__device__ __forceinline__ uint64_t clock_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// True for the one thread block of a launch that comes last; it sees what the others wrote before. All threads call
/// it.
__device__ inline bool is_last_block(int* arrivals, int num_blocks) {
  __shared__ int arrived;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    arrived = atomicAdd(arrivals, 1);
    if (arrived == num_blocks - 1) *arrivals = 0;
  }
  __syncthreads();
  __threadfence();
  return arrived == num_blocks - 1;
}

/// Behind the last sequence's rows it is the last one.
__device__ __forceinline__ int sequence_of_row(const LogitRows& rows, int row) {
  if (!rows.seq_starts) return rows.sequence_rows == 0 ? 0 : row / rows.sequence_rows;
  int sequence = 0;
  while (sequence + 1 < rows.num_seqs && __ldcg(rows.seq_starts + sequence + 1) <= row) ++sequence;
  return sequence;
}

__device__ __forceinline__ int first_row_of(const LogitRows& rows, int sequence) {
  return rows.seq_starts ? __ldcg(rows.seq_starts + sequence) : sequence * rows.sequence_rows;
}

/// Tokens between the sequence and what a row of a verification chooses. `position_ids`: of a tree's rows, or null.
__device__ __forceinline__ int depth_of_row(const LogitRows& rows, const int32_t* position_ids, int row) {
  const int first = first_row_of(rows, sequence_of_row(rows, row));
  return position_ids ? __ldcg(position_ids + row) - __ldcg(position_ids + first) : row - first;
}

/// By one thread a sequence. A pass that follows reads ahead: everything is written before its first kernel starts.
__device__ inline void finish(const DraftStep& step, const RoundMemory& memory, int sequence, int index, float prob) {
  RoundOutcome& outcome = *memory.outcome;
  const int id = step.logit_ids ? __ldg(step.logit_ids + index) : index;
  const int place = sequence * step.num_steps + step.step;
  outcome.drafted_ids[place] = id;
  outcome.drafted_probs[place] = prob;
  if (sequence == 0) outcome.drafted = clock_ns();
  step.target_ids[sequence + place + 1] = id;
  const int position = memory.settings[sequence].draft_position + step.step;
  step.next.input_ids[sequence] = id;
  step.next.position_ids[sequence] = position;
  step.next.context_lens[sequence] = position;
  step.next.seq_starts[sequence + 1] = sequence + 1;
  step.next.output_rows[sequence] = sequence;
  __threadfence();
}

/// By one thread, once all rows have chosen.
__device__ inline void finish(const TargetChoice& choice, const RoundMemory& memory) {
  RoundOutcome& outcome = *memory.outcome;
  outcome.ended = clock_ns();
  if (choice.rows.sequence_rows > 0 || choice.rows.seq_starts) return;
  int row = 0;
  while (row + 1 < choice.rows.num_rows && __ldcg(outcome.chosen_ids + row) == __ldcg(choice.target_ids + row + 1))
    ++row;
  outcome.num_accepted = row;
  outcome.next_id = __ldcg(outcome.chosen_ids + row);
}

}  // namespace pilotfish::cuda
