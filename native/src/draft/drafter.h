// What every source of drafts implements: a guess at how the sequence goes on, added to a token tree.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <span>

#include "draft/draft.h"
#include "plan/confidence_rates.h"
#include "plan/draft_pace.h"
#include "sampling/random_stream.h"
#include "sampling/token_chooser.h"

namespace pilotfish {

struct HeadState;
class SharedPass;

struct DraftRequest {
  std::span<const int32_t> tokens;  // the sequence so far
  int32_t max_levels;               // of a model or head, which has positions for no more
  bool is_chain;                    // each token has one child; else the likeliest paths make a tree
  // What the drafter's confidence is worth. nullptr: it is taken for the probability.
  const ConfidenceRates* rates;
  DraftPace* pace;                       // nullptr: always as far as the tree's limits go
  int32_t first_token;                   // of the sequence that a model sees; begins a cache block
  std::span<const int32_t> block_table;  // of the sequence, for drafters with a cache
  HeadState* head_state;                 // of the sequence, for heads
  TokenChooser& chooser;
  // What a chain's tokens are drawn with, for acceptance by rejection. nullptr: they are the best under the noise that
  // is shared with the target, as those of trees are.
  const RandomStream* random;
  const std::atomic<bool>& cancelled;

  // Children of a token of a tree: further ones are never among the likeliest 63 paths in practice, and each costs a
  // search through the logits.
  static constexpr int32_t kMostChildren = 8;

  // Whether kMostChildren of the likeliest tokens of each row are all that the draft needs.
  bool needs_likeliest_only() const noexcept { return chooser.is_greedy() && !chooser.changes_scores(); }
};

// What one of several requests drafts beside the others.
struct Proposal {
  DraftRequest request;
  Draft* out;
  bool is_cancelled = false;
  std::exception_ptr error = nullptr;  // of this request alone, such as its mask's
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Adds to out.tree, which may hold tokens of another drafter already, within the tree's limits: the rows that the
  // round can still verify and the tokens that the output still needs. A tree that is full is no error. False if the
  // request was cancelled meanwhile.
  virtual bool propose(const DraftRequest& request, Draft& out) = 0;

  // Whether several requests can draft in the same passes, which `pass` is for then: each gets the tree that it gets
  // alone.
  virtual bool shares_passes() const noexcept { return false; }
  virtual void propose(std::span<Proposal> proposals, SharedPass&) {
    for (Proposal& each : proposals) {
      try {
        each.is_cancelled = !propose(each.request, *each.out);
      } catch (...) {
        each.error = std::current_exception();
      }
    }
  }
};

}  // namespace pilotfish
