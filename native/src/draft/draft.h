// What drafters hand to verification: a token tree, and the distributions that its drawn tokens came from.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/token_tree.h"
#include "sampling/sampler.h"

namespace pilotfish {

struct Draft {
  TokenTree tree;
  std::vector<Distribution> distributions;  // [max_draft_tokens] of which the first num_distributions are in use
  int32_t num_distributions = 0;
  int32_t num_cached = 0;  // tokens of the sequence, from its first on, that the draft model's cache holds

  // Slots behind the sequence that the draft model's cache has for drafted tokens. A dynamic tree tries more tokens
  // than it keeps.
  int32_t max_draft_rows = 0;

  // Passes of the drafter after its first one, for the counters: rows of each.
  std::array<int32_t, TokenTree::kMaxTokens> level_rows;
  int32_t num_level_passes = 0;

  // Logits of its source were not numbers somewhere: nothing is drafted there.
  bool is_broken = false;

  void count_level(size_t num_rows) noexcept { level_rows[num_level_passes++] = static_cast<int32_t>(num_rows); }

  void clear(TreeLimits limits, int32_t num_cached_tokens, int32_t max_rows = 0) noexcept {
    tree.clear(limits);
    max_draft_rows = std::max(max_rows, tree.limits().max_tokens);
    num_distributions = num_level_passes = 0;
    is_broken = false;
    num_cached = num_cached_tokens;
  }
};

}  // namespace pilotfish
