// How far a tree is drafted, decided while it grows.
#pragma once

#include <cstdint>
#include <span>

#include "base/token_tree.h"

namespace pilotfish {

class DraftPace {
 public:
  virtual ~DraftPace() = default;
  // How many of the tokens of a level, the likeliest first, the next pass is to continue; 0 ends the draft. Their
  // path_prob is the probability that the target agrees as far as that.
  virtual int32_t num_continued(const TokenTree& tree, std::span<const int32_t> level) noexcept = 0;
};

}  // namespace pilotfish
