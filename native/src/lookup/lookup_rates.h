// How likely a looked-up token is to be the next one: by how long the match before it is and by whether the text went
// on in one way or in several after such matches. Learns from what the target then says, whether or not it was drafted:
// at once how much this text repeats itself altogether, and slowly each rate by itself.
#pragma once

#include <array>
#include <cstdint>

#include "plan/decayed_rate.h"

namespace pilotfish {

class LookupRates {
 public:
  enum class Agreement : uint8_t { kSplit, kOnce, kAlways };  // several continuations, one occurrence, all the same

  // One of the things that a rate is kept for.
  struct Key {
    uint8_t length;  // bucket of the match's length
    uint8_t kind;    // agreement, and for split continuations the rank
  };

  LookupRates() noexcept;

  // `length` tokens before the candidate match, those that were looked up before it included. `rank` is its place
  // among the candidates.
  static Key key(int32_t length, Agreement agreement, int32_t rank) noexcept;
  float rate(Key key) const noexcept;
  void record(Key key, bool is_next) noexcept;

 private:
  static constexpr int32_t kNumLengths = 7;  // 1, 2, 3, 4, 5 to 7, 8 to 15, 16 and more
  static constexpr int32_t kNumKinds = 5;    // once, always, split: first, second, later

  // A normal distribution with which the log odds of all rates lie above or below what other texts taught.
  struct Shift {
    float mean = 0;
    float variance = 0.2f;
  };

  std::array<std::array<DecayedRate, kNumKinds>, kNumLengths> rates_;
  Shift shift_;  // of this text
};

}  // namespace pilotfish
