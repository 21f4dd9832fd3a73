// Grows a draft's token tree on the device, as EAGLE-2 does (Li et al., 2024, section 4): at each level the likeliest
// paths are continued, and of all that were seen the likeliest are verified. One thread block a sequence.
#include "kernels.h"
#include "round_kernels.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 512;
static_assert(kThreads >= kMostCandidates);

__host__ __device__ constexpr int first_candidate(int level) {
  return level == 0 ? 0 : kMostLikely + (level - 1) * kTreeRows * kMostLikely;
}

__device__ int depth_of(int candidate) {
  return candidate < kMostLikely ? 1 : 2 + (candidate - kMostLikely) / (kTreeRows * kMostLikely);
}

/// As ConfidenceRates::prob has it.
__device__ float prob_of(const RateTable& rates, int rank, float confidence, int depth) {
  int bucket = 0;
  while (bucket < kNumConfidences - 1 && confidence >= rates.bucket_ends[bucket]) ++bucket;
  const float ratio = rates.by_confidence[min(rank, kNumRatedRanks - 1)][bucket];
  const int group = depth <= 2 ? depth - 1 : depth <= 4 ? 2 : 3;
  return fminf(fminf(confidence * ratio, 1.0f) * rates.by_depth[group], 1.0f);
}

/// What a sequence has of the memory of all.
struct Tree {
  int sequence;
  const RoundSettings& settings;
  TreeCandidate* candidates;
  int32_t* continued;

  __device__ static Tree of(const TreeStep& step, const RoundMemory& memory, int sequence) {
    return {sequence, memory.settings[sequence], step.tree.candidates + sequence * kMostCandidates,
            step.tree.continued + sequence * kTreeRows};
  }
};

/// Of each sequence's.
__device__ int rows_of_level(const TreeStep& step) { return step.level == 0 ? 1 : kTreeRows; }

/// The children of the level's rows.
__device__ void add_candidate(const TreeStep& step, const Tree& tree, const RoundMemory& memory, int index) {
  const int row = index / kMostLikely, rank = index % kMostLikely;
  const LikelyRow& found = step.tree.likely.rows[tree.sequence * rows_of_level(step) + row];
  const float log_sum = __ldcg(&found.log_sum), confidence = expf(__ldcg(&found.logits[rank]) - log_sum);
  if (!isfinite(log_sum)) memory.outcome->is_broken = 1;
  const int logit = min(__ldcg(&found.indices[rank]), step.num_choices - 1);
  TreeCandidate candidate{};
  candidate.id = step.logit_ids ? __ldg(step.logit_ids + logit) : logit;
  candidate.parent = step.level == 0 ? -1 : tree.continued[row];
  candidate.confidence = confidence;
  candidate.path_prob = prob_of(tree.settings.rates, rank, confidence, step.level + 1);
  candidate.mask = 1;
  if (candidate.parent >= 0) {
    const TreeCandidate& parent = tree.candidates[candidate.parent];
    candidate.path_prob *= parent.path_prob;
    candidate.mask = parent.mask;
  }
  tree.candidates[first_candidate(step.level) + index] = candidate;
}

/// How many of `count` probabilities come before that of `index`; of equal ones the earlier.
__device__ int rank_among(const float* probs, int count, int index) {
  int rank = 0;
  for (int i = 0; i < count; ++i) rank += probs[i] > probs[index] || (probs[i] == probs[index] && i < index);
  return rank;
}

/// The level's candidate `index` becomes a row of the draft's next pass if it is among the likeliest.
__device__ void continue_candidate(const TreeStep& step, const Tree& tree, const float* probs, int index) {
  const int place = rank_among(probs, rows_of_level(step) * kMostLikely, index);
  if (place >= kTreeRows) return;
  TreeCandidate& candidate = tree.candidates[first_candidate(step.level) + index];
  candidate.draft_row = 1 + step.level * kTreeRows + place;
  candidate.mask |= uint64_t{1} << candidate.draft_row;
  tree.continued[place] = first_candidate(step.level) + index;
  const int row = tree.sequence * kTreeRows + place;
  step.tree.parent_rows[row] = tree.sequence * rows_of_level(step) + index / kMostLikely;
  step.next.input_ids[row] = candidate.id;
  step.next.position_ids[row] = tree.settings.draft_position + step.level;
  step.next.tree_mask[row] = candidate.mask;
  step.next.output_rows[row] = row;
  if (place > 0) return;
  step.next.context_lens[tree.sequence] = tree.settings.draft_position - 1;
  step.next.seq_starts[tree.sequence + 1] = (tree.sequence + 1) * kTreeRows;
}

/// The candidate becomes node `index` of the tree: a row of the verification.
__device__ void verify_candidate(const TreeStep& step, const Tree& tree, RoundOutcome& outcome, const int* nodes,
                                 int candidate) {
  const TreeCandidate& chosen = tree.candidates[candidate];
  uint64_t mask = 1;
  for (int at = candidate; at >= 0; at = tree.candidates[at].parent) mask |= uint64_t{2} << nodes[at];
  const int place = tree.sequence * step.num_nodes + nodes[candidate], row = place + tree.sequence + 1;
  step.verified.input_ids[row] = chosen.id;
  step.verified.position_ids[row] = tree.settings.first_position - 1 + depth_of(candidate);
  step.verified.tree_mask[row] = mask;
  outcome.drafted_ids[place] = chosen.id;
  outcome.drafted_probs[place] = chosen.confidence;
  outcome.parents[place] = static_cast<int8_t>(chosen.parent < 0 ? -1 : nodes[chosen.parent]);
  outcome.ranks[place] = static_cast<int8_t>(candidate % kMostLikely);
  outcome.draft_rows[place] = static_cast<int8_t>(chosen.draft_row);
}

__global__ void __launch_bounds__(kThreads)
    grow_tree_kernel(const __grid_constant__ TreeStep step, const __grid_constant__ RoundMemory memory) {
  __shared__ float probs[kMostCandidates];
  __shared__ int nodes[kMostCandidates];  // -1: not of the tree
  const Tree tree = Tree::of(step, memory, blockIdx.x);
  const int thread = threadIdx.x, first = first_candidate(step.level);
  const int num_new = rows_of_level(step) * kMostLikely, num_all = first + num_new;
  if (thread < num_new) add_candidate(step, tree, memory, thread);
  __syncthreads();
  const bool is_last = step.level + 1 == step.num_levels;
  const int begin = is_last ? 0 : first;
  if (thread < num_all - begin) probs[thread] = tree.candidates[begin + thread].path_prob;
  __syncthreads();
  if (!is_last) {
    if (thread < num_new) continue_candidate(step, tree, probs, thread);
  } else {
    // A parent is not less likely than its children and comes before them: what is chosen is a tree.
    const bool is_chosen = thread < num_all && rank_among(probs, num_all, thread) < step.num_nodes;
    if (thread < num_all) nodes[thread] = is_chosen ? 0 : -1;
    __syncthreads();
    int index = 0;
    for (int i = 0; i < min(thread, num_all); ++i) index += nodes[i] >= 0;
    __syncthreads();
    if (is_chosen) nodes[thread] = index;
    __syncthreads();
    if (is_chosen) verify_candidate(step, tree, *memory.outcome, nodes, thread);
  }
  if (thread == 0 && blockIdx.x == 0) memory.outcome->drafted = clock_ns();
  __threadfence();
}

}  // namespace

cudaError_t launch_grow_tree(const TreeStep& step, const RoundMemory& memory, cudaStream_t stream) {
  const int num_seen = first_candidate(step.num_levels);  // candidates of all levels
  const bool is_valid = step.num_levels >= 1 && step.num_levels <= kMostTreeLevels && step.level >= 0 &&
                        step.level < step.num_levels && step.num_nodes >= 1 && step.num_nodes <= num_seen &&
                        step.num_seqs >= 1 && step.num_seqs <= kMostTrees &&
                        step.num_seqs * (step.num_nodes + 1) <= kMaxRoundRows && step.num_choices >= kMostLikely;
  if (!is_valid) return cudaErrorInvalidValue;
  grow_tree_kernel<<<step.num_seqs, kThreads, 0, stream>>>(step, memory);
  return cudaGetLastError();
}

}  // namespace pilotfish::cuda
