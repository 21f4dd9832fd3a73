// How often a drafter's confidence in a token is borne out: drafts are too sure of some tokens and not sure enough of
// others. Learns from what the target says about the tokens that were verified.
#pragma once

#include <array>
#include <cstdint>

#include "base/token_tree.h"
#include "device/round_kernels.h"
#include "plan/decayed_rate.h"

namespace pilotfish {

class ConfidenceRates {
 public:
  // Probability that the target agrees with a token of this depth, from 1, given that it did with its parent.
  float prob(Guess guess, int32_t depth) const noexcept;
  // Of a token whose confidence is not known yet.
  float mean(int32_t rank) const noexcept;
  void record(Guess guess, int32_t depth, bool is_right) noexcept;
  // What prob() is computed from, for a device.
  RateTable table() const noexcept;

 private:
  static constexpr int32_t kNumRanks = kNumRatedRanks;     // first, second, third, later
  static constexpr int32_t kNumBuckets = kNumConfidences;  // of confidence
  static constexpr int32_t kNumDepths = kNumRatedDepths;   // 1, 2, 3 and 4, deeper

  // Observed against foreseen. Begins with as many tokens as if all had been foreseen well.
  struct Ratio {
    float right = 4;
    float foreseen = 4;

    float value() const noexcept { return right / foreseen; }
    void record(bool is_right, float prob) noexcept;
  };

  static int32_t bucket(float confidence) noexcept;
  static int32_t group(int32_t depth) noexcept;
  float prob_by_confidence(Guess guess) const noexcept;

  std::array<std::array<Ratio, kNumBuckets>, kNumRanks> by_confidence_;
  std::array<Ratio, kNumDepths> by_depth_;
  std::array<DecayedRate, kNumRanks> means_{DecayedRate(0.62f, 8, 60), DecayedRate(0.12f, 8, 60),
                                            DecayedRate(0.05f, 8, 60), DecayedRate(0.02f, 8, 60)};
};

}  // namespace pilotfish
