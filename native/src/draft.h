// What a drafter hands to verification: tokens, and the distribution each was drawn from.
#pragma once

#include <vector>

#include "sampler.h"
#include "token_tree.h"

namespace pilotfish {

struct Draft {
  TokenTree tree;
  // [max_draft_tokens] of which the first tree.size() are valid; unused by greedy decoding
  std::vector<Distribution> distributions;
};

}  // namespace pilotfish
