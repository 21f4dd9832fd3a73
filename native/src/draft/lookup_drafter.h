// Drafts what followed earlier occurrences of the last tokens, in the sequence itself and in the texts of a store: no
// model is run. Prompt lookup: Saxena, "Prompt lookup decoding", 2023; with trees as in Oliaro et al.,
// "SuffixDecoding", 2024, where the probabilities come from counts instead.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/token_tree.h"
#include "lookup/lookup_index.h"
#include "lookup/lookup_rates.h"

namespace pilotfish {

class LookupDrafter {
 public:
  // For sequences of up to max_tokens. `store`, which may be nullptr, must outlive it.
  LookupDrafter(int32_t max_tokens, const LookupIndex* store) : index_(max_tokens), store_(store) {}

  // Looks for continuations of the sequence, which has grown since the last call, and returns them: the likeliest path
  // first, so that every beginning of the tree's tokens is a tree of the likeliest. No path is less likely than
  // kLeastPathProb or longer than the limits allow.
  const TokenTree& search(std::span<const int32_t> tokens, TreeLimits limits) noexcept;
  // Adds the first num_tokens of what search() found to a tree that may have others.
  void propose(int32_t num_tokens, TokenTree& out) const noexcept;
  // What came after the searched tokens, to learn from: drafted or not.
  void record(std::span<const int32_t> next_ids) noexcept;

 private:
  static constexpr float kLeastPathProb = 0.02f;
  static constexpr int32_t kMostMatches = 8;

  // Occurrences that agree with a path of the tree, as bits of their places in matches_.
  struct Branch {
    int32_t parent;
    int32_t depth;  // of the parent
    uint32_t matches;
  };
  struct Candidate {
    int32_t id;
    LookupRates::Key key;
    float prob;
    float path_prob;
    Branch branch;  // below it, once it is in the tree; its parent is the candidate's
  };

  void find_matches(std::span<const int32_t> tokens) noexcept;
  // The token that follows a match after `depth` more; LookupIndex::kNone at the text's end.
  int32_t token_after(int32_t match, int32_t depth) const noexcept;
  // Those of `matches` that `id` follows after `depth` tokens more.
  uint32_t matches_with(uint32_t matches, int32_t depth, int32_t id) const noexcept;
  // Adds what may follow a branch to the candidates.
  void branch_out(const Branch& branch) noexcept;

  LookupIndex index_;
  const LookupIndex* store_;
  LookupRates rates_;
  TokenTree tree_;
  std::array<LookupRates::Key, TokenTree::kMaxTokens> keys_;  // of the tree's tokens
  std::array<LookupIndex::Match, kMostMatches> matches_;
  int32_t num_matches_ = 0;
  const LookupIndex* matched_ = nullptr;            // the text that the matches are in
  std::array<Candidate, kMostMatches> candidates_;  // each has matches of its own
  int32_t num_candidates_ = 0;
};

}  // namespace pilotfish
