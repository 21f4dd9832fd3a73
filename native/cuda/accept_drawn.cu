// Lossless acceptance of a drawn chain (Leviathan et al., 2023; Chen et al., 2023; `src/accept.h`): all tokens are
// tried at once, and the token after the accepted ones is drawn from what the target's distribution has become. One
// thread block.
#include "kernels.h"
#include "row_distribution.cuh"

namespace pilotfish::cuda {
namespace {

constexpr float kResidualUnit = 1152921504606846976.0f;  // 2^60: probabilities of a residual sum to at most 1

struct Reader {
  const DrawnAcceptance& a;
  const RoundMemory& memory;

  __device__ float logit(int row, int id) const {
    return __ldcg(a.target.logits + static_cast<size_t>(row) * a.target.num_logits + id);
  }
  __device__ float target_prob(int row, int id) const { return prob_of(memory.target_rows[row], logit(row, id), id); }
  __device__ float draft_prob(int row, int id) const {
    const int index = a.logit_of_id ? __ldg(a.logit_of_id + id) : id;
    if (index < 0 || index >= a.draft.num_choices) return 0;
    const float logit = __ldcg(a.draft.logits + static_cast<size_t>(row) * a.draft.num_logits + index);
    return prob_of(memory.draft_rows[row], logit, index);
  }
};

__global__ void __launch_bounds__(kRowThreads)
    accept_drawn_kernel(const __grid_constant__ DrawnAcceptance a, const __grid_constant__ RoundMemory memory) {
  __shared__ RowShared shared;
  __shared__ int num_accepted;
  const Reader read{a, memory};
  const RoundSettings& settings = *memory.settings;
  const int num_drafted = a.draft.num_rows, tried = threadIdx.x;
  if (tried == 0) num_accepted = num_drafted;
  __syncthreads();
  if (tried < num_drafted) {
    const int id = a.target_ids[tried + 1];
    const double u = uniform(settings, settings.first_position + tried, Purpose::kAccept);
    if (!(u * read.draft_prob(tried, id) < read.target_prob(tried, id))) atomicMin(&num_accepted, tried);
  }
  __syncthreads();
  const int row = num_accepted;
  const double u = uniform(settings, settings.first_position + row, Purpose::kTarget);
  int next = -1;
  if (row < num_drafted) {
    const auto residual = [&](int id) {
      return __float2ull_rn(fmaxf(read.target_prob(row, id) - read.draft_prob(row, id), 0.0f) * kResidualUnit);
    };
    next = draw(a.target.num_choices, u, residual, shared);
  }
  // Nothing is left of p where p equals q but for rounding: then a rejection is rounding too, and p is the residual.
  if (next < 0) {
    const auto whole = [&](int id) { return __float2ull_rn(read.target_prob(row, id) * kResidualUnit); };
    next = max(draw(a.target.num_choices, u, whole, shared), 0);
  }
  RoundOutcome& outcome = *memory.outcome;
  if (threadIdx.x <= row) {
    const int at = threadIdx.x, id = at < row ? a.target_ids[at + 1] : next;
    outcome.logprobs[at] = read.logit(at, id) - memory.target_rows[at].log_sum;
  }
  if (threadIdx.x != 0) return;
  outcome.num_accepted = row;
  outcome.next_id = next;
  outcome.ended = clock_ns();
}

}  // namespace

cudaError_t launch_accept_drawn(const DrawnAcceptance& acceptance, const RoundMemory& memory, cudaStream_t stream) {
  const int num_drafted = acceptance.draft.num_rows;
  if (num_drafted < 1 || acceptance.target.num_rows != num_drafted + 1 || acceptance.target.num_rows > kMaxRoundRows) {
    return cudaErrorInvalidValue;
  }
  accept_drawn_kernel<<<1, kRowThreads, 0, stream>>>(acceptance, memory);
  return cudaGetLastError();
}

}  // namespace pilotfish::cuda
