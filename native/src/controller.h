// Whether to draft, and how far: drafts are stopped where another token would cost more time than it is likely to save.
// Decides from tokens and the draft's probabilities alone, never from the clock, so that a seed repeats its tokens.
#pragma once

#include <cstdint>

namespace pilotfish {

class DraftController {
 public:
  // A drafted token costs one pass of the draft and one more row of the target's; in units of a target pass of one row
  // the first is about the ratio of the weight bytes that a pass reads.
  DraftController(uint64_t draft_pass_bytes, uint64_t target_pass_bytes) noexcept;

  // How many tokens the next round drafts at most: `most`, or none while drafts are rarely accepted. Then one round in
  // sixteen still drafts, to notice when that changes.
  int32_t limit(int32_t most) noexcept;
  // A draft is stopped after the token that takes the product of the draft's confidences below this. A further token
  // gains a target pass with the probability that all before it and it itself are accepted, the latter about one half.
  float least_confidence() const noexcept { return 2 * cost_; }
  // Outcome of a round that drafted.
  void record(bool first_accepted) noexcept;

 private:
  float cost_;                  // of a drafted token, in target passes
  float acceptance_ = 1;        // running mean of first tokens accepted
  int32_t rounds_without_ = 0;  // since the last draft
};

}  // namespace pilotfish
