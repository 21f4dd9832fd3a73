#include "draft/lookup_drafter.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace pilotfish {

const TokenTree& LookupDrafter::search(std::span<const int32_t> tokens, TreeLimits limits) noexcept {
  assert(tokens.size() >= size_t(index_.size()));
  index_.append(tokens.subspan(index_.size()));
  tree_.clear(limits);
  num_candidates_ = 0;
  find_matches(tokens);
  if (num_matches_ > 0) branch_out({TokenTree::kRoot, 0, (1u << num_matches_) - 1});
  while (num_candidates_ > 0 && !tree_.is_full()) {
    Candidate* best =
        std::max_element(candidates_.begin(), candidates_.begin() + num_candidates_,
                         [](const Candidate& a, const Candidate& b) { return a.path_prob < b.path_prob; });
    const Candidate chosen = *best;
    std::move(best + 1, candidates_.begin() + num_candidates_--, best);
    const int32_t index = tree_.add(chosen.id, chosen.branch.parent, chosen.prob, Source::kLookup);
    if (index == TokenTree::kNone) continue;  // too deep
    keys_[index] = chosen.key;
    branch_out({index, chosen.branch.depth + 1, chosen.branch.matches});
  }
  return tree_;
}

void LookupDrafter::find_matches(std::span<const int32_t> tokens) noexcept {
  std::span<LookupIndex::Match> found = index_.find(tokens, matches_);
  matched_ = &index_;
  // The sequence itself knows more than other texts; those are asked only where they know a longer beginning.
  if (store_ && (found.empty() || found[0].length < LookupIndex::kLongestMatch)) {
    std::array<LookupIndex::Match, kMostMatches> room;
    const std::span<const LookupIndex::Match> stored = store_->find(tokens, room);
    if (!stored.empty() && (found.empty() || stored[0].length > found[0].length)) {
      found = std::span(matches_).first(stored.size());
      std::copy(stored.begin(), stored.end(), found.begin());
      matched_ = store_;
    }
  }
  num_matches_ = static_cast<int32_t>(found.size());
}

int32_t LookupDrafter::token_after(int32_t match, int32_t depth) const noexcept {
  const int32_t index = matches_[match].next + depth;
  return index < matched_->size() ? matched_->tokens()[index] : LookupIndex::kNone;
}

uint32_t LookupDrafter::matches_with(uint32_t matches, int32_t depth, int32_t id) const noexcept {
  uint32_t same = 0;
  for (int32_t match = 0; match < num_matches_; ++match) {
    if (matches >> match & 1 && token_after(match, depth) == id) same |= 1u << match;
  }
  return same;
}

void LookupDrafter::branch_out(const Branch& branch) noexcept {
  using Agreement = LookupRates::Agreement;
  const float parent_prob = branch.parent == TokenTree::kRoot ? 1 : tree_[branch.parent].path_prob;
  uint32_t left = branch.matches & ~matches_with(branch.matches, branch.depth, LookupIndex::kNone);
  if (left == 0) return;
  const int32_t longest = matches_[std::countr_zero(left)].length;
  uint32_t best = 0;  // the longest matches: whether they agree is what counts
  for (int32_t match = 0; match < num_matches_; ++match) {
    if (left >> match & 1 && matches_[match].length == longest) best |= 1u << match;
  }
  for (int32_t rank = 0; left != 0; ++rank) {
    const int32_t match = std::countr_zero(left);
    const int32_t id = token_after(match, branch.depth);
    const uint32_t same = matches_with(left, branch.depth, id);
    left &= ~same;
    const Agreement agreement = (best & ~same) != 0         ? Agreement::kSplit
                                : std::has_single_bit(best) ? Agreement::kOnce
                                                            : Agreement::kAlways;
    const LookupRates::Key key = LookupRates::key(matches_[match].length + branch.depth, agreement, rank);
    const float prob = rates_.rate(key);
    if (parent_prob * prob < kLeastPathProb) continue;
    candidates_[num_candidates_++] = {id, key, prob, parent_prob * prob, {branch.parent, branch.depth, same}};
  }
}

void LookupDrafter::propose(int32_t num_tokens, TokenTree& out) const noexcept {
  std::array<int32_t, TokenTree::kMaxTokens> indices;
  for (int32_t i = 0; i < std::min(tree_.size(), num_tokens); ++i) {
    const TreeToken& token = tree_[i];
    const int32_t parent = token.parent == TokenTree::kRoot ? TokenTree::kRoot : indices[token.parent];
    indices[i] = out.add(token.id, parent, token.prob, Source::kLookup);
  }
}

void LookupDrafter::record(std::span<const int32_t> next_ids) noexcept {
  int32_t parent = TokenTree::kRoot;
  for (const int32_t id : next_ids) {
    int32_t next = TokenTree::kNone;
    for (int32_t i = tree_.next_child(parent, TokenTree::kRoot); i != TokenTree::kNone;
         i = tree_.next_child(parent, i)) {
      rates_.record(keys_[i], tree_[i].id == id);
      if (tree_[i].id == id) next = i;
    }
    if (next == TokenTree::kNone) return;
    parent = next;
  }
}

}  // namespace pilotfish
