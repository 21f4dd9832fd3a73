// Draws a child of a token beside those that it has already.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/sampler.h"

namespace pilotfish {

struct Drawn {
  int32_t id;
  float mass;  // of the distribution without the siblings; 0: they are all there was, and nothing was drawn
  float peak;  // probability of the likeliest token that could have been drawn, a fair guess of the acceptance rate
};

// Draws a token that is none of its elder siblings, at most TokenTree::kMaxTokens of them, whatever put them there. The
// distribution is left as it was. u in [0, 1).
Drawn draw_beside(Distribution& distribution, std::span<const int32_t> siblings, double u);

}  // namespace pilotfish
