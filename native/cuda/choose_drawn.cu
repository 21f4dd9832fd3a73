// Draws the token of rows of logits from their processed distributions, which it leaves for acceptance. One thread
// block a row.
#include "kernels.h"
#include "row_distribution.cuh"

namespace pilotfish::cuda {
namespace {

__device__ int draw_from(const LogitRows& rows, int index, const RowDistribution& row, double u, RowShared& shared) {
  const float* const logits = rows.logits + static_cast<size_t>(index) * rows.num_logits;
  const auto weight = [&](int i) {
    const float logit = __ldcg(logits + i);
    return is_kept(row, logit, i) ? fixed(weight_of(row, logit)) : Sum{0};
  };
  return max(draw(rows.num_choices, u, weight, shared), 0);
}

__global__ void __launch_bounds__(kRowThreads)
    choose_draft_kernel(const __grid_constant__ DraftStep step, const __grid_constant__ RoundMemory memory) {
  __shared__ RowShared shared;
  const RoundSettings& settings = *memory.settings;
  RowDistribution row{};
  const bool is_number = find_distribution(step.rows, 0, settings, row, shared);
  int index = 0;
  if (is_number) {
    const double u = uniform(settings, settings.first_position + step.step, Purpose::kDraft);
    index = draw_from(step.rows, 0, row, u, shared);
  }
  if (threadIdx.x != 0) return;
  if (!is_number) memory.outcome->is_broken = 1;
  memory.draft_rows[step.step] = row;
  finish(step, memory, index, row.inverse_mass);
}

/// Of the target's rows; with `draws` each chooses a token.
__global__ void __launch_bounds__(kRowThreads)
    choose_target_kernel(const __grid_constant__ TargetChoice choice, const __grid_constant__ RoundMemory memory,
                         bool draws) {
  __shared__ RowShared shared;
  const RoundSettings& settings = *memory.settings;
  const int index = blockIdx.x;
  RowDistribution row{};
  const bool is_number = find_distribution(choice.rows, index, settings, row, shared);
  int id = 0;
  if (is_number && draws) {
    const int depth = choice.position_ids ? __ldcg(choice.position_ids + index) - __ldcg(choice.position_ids) : index;
    id = draw_from(choice.rows, index, row, uniform(settings, settings.first_position + depth, Purpose::kTarget),
                   shared);
  }
  if (threadIdx.x == 0) {
    if (!is_number) memory.outcome->is_broken = 1;
    memory.target_rows[index] = row;
    memory.outcome->chosen_ids[index] = id;
    const float logit = __ldcg(choice.rows.logits + static_cast<size_t>(index) * choice.rows.num_logits + id);
    memory.outcome->logprobs[index] = logit - row.log_sum;
  }
  if (!draws || !is_last_block(memory.arrivals, gridDim.x)) return;
  if (threadIdx.x == 0) finish(choice, memory);
}

bool is_valid(const LogitRows& rows) {
  return rows.num_rows >= 1 && rows.num_rows <= kMaxRoundRows && rows.num_choices >= 1 &&
         rows.num_choices <= rows.num_logits;
}

}  // namespace

cudaError_t launch_choose_drawn(const DraftStep& step, const RoundMemory& memory, cudaStream_t stream) {
  if (!is_valid(step.rows) || step.rows.num_rows != 1) return cudaErrorInvalidValue;
  choose_draft_kernel<<<1, kRowThreads, 0, stream>>>(step, memory);
  return cudaGetLastError();
}

cudaError_t launch_choose_drawn(const TargetChoice& choice, const RoundMemory& memory, bool draws,
                                cudaStream_t stream) {
  if (!is_valid(choice.rows)) return cudaErrorInvalidValue;
  choose_target_kernel<<<choice.rows.num_rows, kRowThreads, 0, stream>>>(choice, memory, draws);
  return cudaGetLastError();
}

}  // namespace pilotfish::cuda
