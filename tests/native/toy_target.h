// A target of six tokens, for the tests of acceptance: what it thinks of the first token, and of the second after each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "chi_square.h"

namespace check {

inline constexpr int32_t kNumIds = 6;

inline const Probs kFirst{0.05f, 0.1f, 0.15f, 0.2f, 0.2f, 0.3f};

inline Probs second_after(int32_t id) {
  Probs probs = kFirst;
  std::rotate(probs.begin(), probs.begin() + id, probs.end());
  return probs;
}

}  // namespace check
