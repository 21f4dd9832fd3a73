// Lengths of drafted chains, few, where each has a cost of its own: a device records each.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace pilotfish {

// With the token before them 2, 3, 4, 5, 6, 8, 12, ... rows are verified: tensor cores take rows by 8, and a ninth one
// costs as much as eight.
inline constexpr std::array<int32_t, 12> kChainLengths{1, 2, 3, 4, 5, 7, 11, 15, 23, 31, 47, 63};

// The longest of them that has at most `most` tokens; most >= 1.
inline int32_t chain_length_within(int32_t most) noexcept {
  return *(std::upper_bound(kChainLengths.begin(), kChainLengths.end(), most) - 1);
}

}  // namespace pilotfish
