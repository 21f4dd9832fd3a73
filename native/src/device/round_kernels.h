// What the kernels of a round on a device read and write. Plain structs, shared with libpilotfish_cuda; all pointers
// are to device memory.
#pragma once

#include <cstdint>

namespace pilotfish {

inline constexpr int32_t kMaxRoundRows = 64;  // the last token of the sequence and up to 63 drafted ones

inline constexpr int32_t kNumRatedRanks = 4;   // first, second, third, later
inline constexpr int32_t kNumRatedDepths = 4;  // as ConfidenceRates groups them: 1, 2, 3 and 4, deeper
inline constexpr int32_t kNumConfidences = 8;

// What a drafter's confidence is worth: ConfidenceRates as a table.
struct RateTable {
  float by_confidence[kNumRatedRanks][kNumConfidences];
  float by_depth[kNumRatedDepths];
  float bucket_ends[kNumConfidences - 1];
};

// Of one round of one sequence, uploaded before it.
struct RoundSettings {
  int32_t first_position;  // index in the sequence of the first token that the round decides
  int32_t draft_position;  // the same in what the draft model sees
  float inverse_temperature;
  int32_t top_k;          // 0: off
  float top_p;            // 1: off
  float min_p;            // 0: off
  uint32_t key[2];        // of the shared noise
  int32_t is_greedy = 0;  // 1: the likeliest tokens are taken, without noise
  RateTable rates = {};   // for trees
};

// Read back after it. Of several sequences, rows and drafted tokens follow each other, and what is accepted is left to
// the host.
struct RoundOutcome {
  uint64_t started, drafted, ended;  // the device's clock, nanoseconds
  int32_t is_broken;                 // 1: a row of logits was not of numbers, and nothing else counts
  int32_t num_accepted;
  int32_t next_id;                     // after the accepted tokens
  int32_t drafted_ids[kMaxRoundRows];  // of the draft model
  float drafted_probs[kMaxRoundRows];  // the draft's confidence in each
  int32_t chosen_ids[kMaxRoundRows];   // what each of the target's rows chooses
  float logprobs[kMaxRoundRows];       // of the tokens that follow the rows up to next_id
  // Of a tree's drafted tokens: as TokenTree has them.
  int8_t parents[kMaxRoundRows], ranks[kMaxRoundRows], draft_rows[kMaxRoundRows];
};

// What the filters keep of a row.
struct RowDistribution {
  float peak;      // the largest logit
  float scale;     // 1 / temperature in powers of two
  uint32_t least;  // order_of() the smallest logit that is kept
  int32_t last;    // of the logits that equal it, the index of the last one kept
  float log_sum;   // logarithm of the sum of exp(logit), unprocessed, padding included
};

// A piece of a row of logits.
struct RowPart {
  float best;  // the largest that may be chosen
  int32_t index;
  float peak;  // the largest, padding included
  float sum;   // of exp(logit - peak)
};

// Memory that the kernels of a round share.
struct RoundMemory {
  const RoundSettings* settings;  // of each sequence
  RoundOutcome* outcome;
  RowPart* parts;         // [kMaxRoundRows, num_row_parts(num_logits)]
  int32_t* arrivals;      // 0 before the first kernel and after each one
  RowDistribution* rows;  // [kMaxRoundRows] that noise was added to last
};

inline constexpr int32_t kPartLogits = 2048;
constexpr int32_t num_row_parts(int32_t num_logits) { return (num_logits + kPartLogits - 1) / kPartLogits; }

struct LogitRows {
  const float* logits;  // [num_rows, num_logits]
  int32_t num_rows;
  int32_t num_logits;
  int32_t num_choices;        // the logits behind are padding, which is never chosen
  int32_t sequence_rows = 0;  // of each of several sequences, one after the other; 0: all are of one
  // Of several sequences whose rows differ in number, in place of sequence_rows: where the rows of each begin, which
  // the device has. Rows behind those of the last one are padding.
  const int32_t* seq_starts = nullptr;  // [num_seqs + 1]
  int32_t num_seqs = 1;
};

inline constexpr int32_t kMostLikely = 8;

// The largest logits of a row; minus infinity where it has fewer.
struct LikelyRow {
  float logits[kMostLikely];  // descending
  int32_t indices[kMostLikely];
  float log_sum;  // logarithm of the sum of exp(logit) over all that may be chosen
};

// Memory of the search for them.
struct LikelyMemory {
  LikelyRow* rows;    // [kMaxRoundRows]
  LikelyRow* parts;   // [kMaxRoundRows, num_row_parts(num_logits)]
  int32_t* arrivals;  // 0 before the first launch and after each one
};

// Inputs of a model's pass (GRAPH.md).
struct PassInputs {
  int32_t* input_ids;
  int32_t* position_ids;
  int32_t* seq_starts;
  int32_t* context_lens;
  int32_t* output_rows;
  uint64_t* tree_mask;
};

// The choice of a draft step's token, which becomes the input of the draft's next pass and a row of the verification.
struct DraftStep {
  LogitRows rows;            // one a sequence
  const int32_t* logit_ids;  // [num_logits] the token of each logit; null: its index
  int32_t step;              // from 0
  PassInputs next;
  int32_t* target_ids;    // input_ids of the verification
  int32_t num_steps = 0;  // of the round; not read for one sequence
};

// A tree that grows on the device: the first level has kMostLikely tokens, of each level kTreeRows are continued.
inline constexpr int32_t kTreeRows = 8;
inline constexpr int32_t kMostTreeLevels = 8;
inline constexpr int32_t kMostTrees = kMaxRoundRows / kTreeRows;  // of sequences that share a round
inline constexpr int32_t kMostCandidates = kMostLikely + (kMostTreeLevels - 1) * kTreeRows * kMostLikely;

struct TreeCandidate {
  int32_t id;
  int32_t parent;     // candidate, -1: the root
  float confidence;   // the draft's probability of it after its parent
  float path_prob;    // that the target agrees as far as this
  int32_t draft_row;  // slot of the draft's cache, counted from the root; 0: not continued
  uint64_t mask;      // slots that it sees
};

// Of each of the sequences that grow a tree in a round, kMostTrees at most.
struct TreeMemory {
  LikelyMemory likely;        // of the level's rows
  TreeCandidate* candidates;  // [num_seqs, kMostCandidates] level by level
  int32_t* continued;         // [num_seqs, kTreeRows] candidates of the sequence that the level's rows are
  int32_t* parent_rows;       // [num_seqs, kTreeRows] rows of the pass before that they follow
};

// What comes after a level's pass: the next level's inputs or, after the last one, the verification's.
struct TreeStep {
  TreeMemory tree;
  int32_t level;  // from 0
  int32_t num_levels;
  int32_t num_nodes;
  int32_t num_choices;
  const int32_t* logit_ids;  // [num_choices] the token of each logit; null: its index
  PassInputs next, verified;
  int32_t num_seqs = 1;
};

// The choice of each row of a verification. As far as the drafted tokens of a chain are the chosen ones they are
// accepted; what a tree's choices come to is left to whoever knows the tree.
struct TargetChoice {
  LogitRows rows;
  const int32_t* target_ids;
  const int32_t* position_ids = nullptr;  // of the rows of trees, a root's first; null: one after the other
  bool is_noisy = false;                  // noise was added to the rows
};

// Rows that noise is added to, in place: a sampled round is the greedy one with it.
struct NoisyRows {
  LogitRows rows;
  float* logits;                          // the same
  const int32_t* logit_ids = nullptr;     // as of DraftStep
  bool has_one_depth = false;             // all rows choose the token after `depth` more than the sequence
  int32_t depth = 0;                      // ; else they are of a verification
  const int32_t* position_ids = nullptr;  // as of TargetChoice
};

}  // namespace pilotfish
