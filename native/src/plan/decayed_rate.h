// How often something was true lately, beginning with a guess.
#pragma once

#include <algorithm>

namespace pilotfish {

class DecayedRate {
 public:
  // `guess` counts as much as num_guessed observations; the last num_remembered decide in the long run.
  constexpr DecayedRate(float guess, float num_guessed, float num_remembered) noexcept
      : mean_(guess), weight_(num_guessed), num_remembered_(num_remembered) {}

  float mean() const noexcept { return mean_; }
  void record(float value) noexcept {
    weight_ = std::min(weight_ + 1, num_remembered_);
    mean_ += (value - mean_) / weight_;
  }

 private:
  float mean_;
  float weight_;
  float num_remembered_;
};

}  // namespace pilotfish
