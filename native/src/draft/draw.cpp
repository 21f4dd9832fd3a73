#include "draft/draw.h"

#include <array>
#include <cassert>

#include "base/token_tree.h"
#include "sampling/row_math.h"

namespace pilotfish {

Drawn draw_beside(Distribution& distribution, std::span<const int32_t> siblings, double u) {
  assert(siblings.size() <= size_t(TokenTree::kMaxTokens));
  std::array<float, TokenTree::kMaxTokens> probs;
  for (size_t i = 0; i < siblings.size(); ++i) {
    probs[i] = distribution.prob_of(siblings[i]);
    distribution.set_prob(siblings[i], 0);
  }
  const float mass = siblings.empty() ? 1.0f : static_cast<float>(distribution.mass());
  Drawn drawn{.id = 0, .mass = mass, .peak = 0};
  if (mass > 0) {
    drawn.id = distribution.sample(u);
    drawn.peak = find_peak(distribution.probs).value;
  }
  for (size_t i = 0; i < siblings.size(); ++i) distribution.set_prob(siblings[i], probs[i]);
  return drawn;
}

}  // namespace pilotfish
