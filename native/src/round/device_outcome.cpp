#include "round/device_outcome.h"

#include <algorithm>
#include <limits>

namespace pilotfish {

void write_chain(const RoundOutcome& outcome, int32_t num_drafted, Source source, Draft& out) {
  int32_t parent = TokenTree::kRoot;
  for (int32_t i = 0; i < num_drafted; ++i) {
    // A tree takes no token of probability zero, which is what rounding may make of a small one.
    const float prob = std::max(outcome.drafted_probs[i], std::numeric_limits<float>::min());
    parent = out.tree.add(outcome.drafted_ids[i], parent, prob, source);
    out.tree.set_guess(parent, {.rank = 0, .confidence = prob});
    if (i + 1 == num_drafted) break;
    out.tree.set_draft_row(parent, i + 1);
    out.count_level(1);
  }
}

void write_tree(const RoundOutcome& outcome, TreeLimits drafted, const ConfidenceRates& rates, Source source,
                Draft& out) {
  for (int32_t i = 0; i < drafted.max_tokens; ++i) {
    const int32_t parent = outcome.parents[i] < 0 ? TokenTree::kRoot : outcome.parents[i];
    const int32_t depth = parent == TokenTree::kRoot ? 1 : out.tree[parent].depth + 1;
    const Guess guess{.rank = outcome.ranks[i], .confidence = outcome.drafted_probs[i]};
    const float prob = std::max(rates.prob(guess, depth), std::numeric_limits<float>::min());
    const int32_t index = out.tree.add(outcome.drafted_ids[i], parent, prob, source);
    out.tree.set_guess(index, guess);
    out.tree.set_draft_row(index, outcome.draft_rows[i]);
  }
  for (int32_t level = 1; level < drafted.max_depth; ++level) out.count_level(kTreeRows);
}

Accepted accepted_of(const RoundOutcome& outcome, const TokenChooser& chooser) {
  Accepted accepted;
  accepted.next_id = outcome.next_id;
  while (accepted.num_accepted < outcome.num_accepted) {
    const int32_t index = accepted.num_accepted++;
    accepted.path[index] = index;
    if (chooser.ends_text(outcome.drafted_ids[index])) break;
  }
  return accepted;
}

Accepted accepted_of(const RoundOutcome& outcome, const TokenTree& tree, const TokenChooser& chooser,
                     int32_t first_row) {
  Accepted accepted;
  for (;;) {
    accepted.next_id = outcome.chosen_ids[first_row + accepted.last() + 1];
    const int32_t child = tree.find_child(accepted.last(), accepted.next_id);
    if (child == TokenTree::kNone) return accepted;
    accepted.path[accepted.num_accepted++] = child;
    if (chooser.ends_text(accepted.next_id)) return accepted;
  }
}

}  // namespace pilotfish
