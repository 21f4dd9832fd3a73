// What drafters hand to verification: a token tree, and the distributions that its drawn tokens came from.
#pragma once

#include <cstdint>
#include <vector>

#include "sampler.h"
#include "token_tree.h"

namespace pilotfish {

struct Draft {
  TokenTree tree;
  std::vector<Distribution> distributions;  // [max_draft_tokens] of which the first num_distributions are in use
  int32_t num_distributions = 0;
  int32_t num_cached = 0;  // tokens of the sequence, from its first on, that the draft model's cache holds

  void clear(TreeLimits limits, int32_t num_cached_tokens) noexcept {
    tree.clear(limits);
    num_distributions = 0;
    num_cached = num_cached_tokens;
  }
};

}  // namespace pilotfish
