#include <algorithm>
#include <cmath>

#include "round/accept.h"

namespace pilotfish {
namespace {

// A token of the tree, or its root, as the target sees it.
struct Reached {
  bool is_open = false;  // kept, and the text goes on
  double log_prob = 0;   // of the path
};

// Calls use(logits, prefix) with what the target's row after a token of the tree is processed from.
template <typename Use>
auto at_row(const Verification& verification, int32_t index, Use&& use) {
  std::array<int32_t, TokenTree::kMaxTokens> ids;
  const Prefix prefix{verification.tokens, verification.tree.path(index, ids)};
  return use(verification.target.row(index + 1).first(verification.num_ids), prefix);
}

// False where no token may follow; after the root that is an error.
bool fill_distribution(const Verification& verification, int32_t index, Distribution& out) {
  return at_row(verification, index, [&](std::span<const float> logits, const Prefix& prefix) {
    if (verification.chooser.distribution(logits, prefix, out)) return true;
    if (index == TokenTree::kRoot) verification.chooser.fail_no_token(logits, prefix);
    return false;
  });
}

// TokenChooser::kNoToken where none may follow; after the root that is an error.
int32_t choose_after(const Verification& verification, int32_t index) {
  return at_row(verification, index, [&](std::span<const float> logits, const Prefix& prefix) {
    const int32_t id = verification.chooser.choose(logits, prefix);
    if (id == TokenChooser::kNoToken && index == TokenTree::kRoot) {
      verification.chooser.fail_no_token(logits, prefix);
    }
    return id;
  });
}

int32_t depth_of(const TokenTree& tree, int32_t index) { return index == TokenTree::kRoot ? 0 : tree[index].depth; }

// The longest path that is kept, of equal ones the likelier: its last token.
int32_t find_best(const Verification& verification, const TypicalOptions& options, Distribution& scratch) {
  const TokenTree& tree = verification.tree;
  std::array<Reached, TokenTree::kMaxTokens + 1> reached{};  // token i at i + 1
  reached[0].is_open = true;
  int32_t best = TokenTree::kRoot;
  for (int32_t parent = TokenTree::kRoot; parent < tree.size(); ++parent) {
    int32_t child = tree.next_child(parent, parent);
    if (!reached[parent + 1].is_open || child == TokenTree::kNone) continue;
    if (!fill_distribution(verification, parent, scratch)) continue;
    const double least = std::min<double>(options.epsilon, options.delta * std::exp(-scratch.entropy()));
    for (; child != TokenTree::kNone; child = tree.next_child(parent, child)) {
      const double prob = scratch.prob_of(tree[child].id);
      if (!(prob > least)) continue;
      reached[child + 1] = {!verification.chooser.ends_text(tree[child].id),
                            reached[parent + 1].log_prob + std::log(prob)};
      const int32_t gain = tree[child].depth - depth_of(tree, best);
      if (gain > 0 || (gain == 0 && reached[child + 1].log_prob > reached[best + 1].log_prob)) best = child;
    }
  }
  return best;
}

}  // namespace

Accepted accept_typical(const Verification& verification, const TypicalOptions& options, Distribution& scratch) {
  const int32_t best = find_best(verification, options, scratch);
  Accepted accepted;
  accepted.num_accepted = depth_of(verification.tree, best);
  for (int32_t i = accepted.num_accepted - 1, index = best; i >= 0; --i, index = verification.tree[index].parent) {
    accepted.path[i] = index;
  }
  if (best != TokenTree::kRoot && verification.chooser.ends_text(verification.tree[best].id)) return accepted;
  accepted.next_id = choose_after(verification, best);
  return accepted;
}

}  // namespace pilotfish
