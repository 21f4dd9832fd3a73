#include "plan/confidence_rates.h"

#include <algorithm>

namespace pilotfish {
namespace {

constexpr std::array<float, 7> kBucketEnds{0.03f, 0.08f, 0.2f, 0.4f, 0.65f, 0.85f, 0.96f};
constexpr float kMostRemembered = 60;  // foreseen tokens
constexpr float kLeastForeseen = 1e-4f;

}  // namespace

void ConfidenceRates::Ratio::record(bool is_right, float prob) noexcept {
  right += is_right ? 1.0f : 0.0f;
  foreseen += std::max(prob, kLeastForeseen);
  if (foreseen <= kMostRemembered) return;
  right *= kMostRemembered / foreseen;
  foreseen = kMostRemembered;
}

int32_t ConfidenceRates::bucket(float confidence) noexcept {
  static_assert(kBucketEnds.size() == kNumBuckets - 1);
  return static_cast<int32_t>(std::upper_bound(kBucketEnds.begin(), kBucketEnds.end(), confidence) -
                              kBucketEnds.begin());
}

int32_t ConfidenceRates::group(int32_t depth) noexcept { return depth <= 2 ? depth - 1 : depth <= 4 ? 2 : 3; }

float ConfidenceRates::prob_by_confidence(Guess guess) const noexcept {
  const Ratio& ratio = by_confidence_[std::min(guess.rank, kNumRanks - 1)][bucket(guess.confidence)];
  return std::min(guess.confidence * ratio.value(), 1.0f);
}

float ConfidenceRates::prob(Guess guess, int32_t depth) const noexcept {
  return std::min(prob_by_confidence(guess) * by_depth_[group(depth)].value(), 1.0f);
}

RateTable ConfidenceRates::table() const noexcept {
  RateTable table;
  for (int32_t rank = 0; rank < kNumRanks; ++rank) {
    for (int32_t i = 0; i < kNumBuckets; ++i) table.by_confidence[rank][i] = by_confidence_[rank][i].value();
  }
  for (int32_t depth = 0; depth < kNumDepths; ++depth) table.by_depth[depth] = by_depth_[depth].value();
  std::copy(kBucketEnds.begin(), kBucketEnds.end(), table.bucket_ends);
  return table;
}

float ConfidenceRates::mean(int32_t rank) const noexcept { return means_[std::min(rank, kNumRanks - 1)].mean(); }

void ConfidenceRates::record(Guess guess, int32_t depth, bool is_right) noexcept {
  const int32_t rank = std::min(guess.rank, kNumRanks - 1);
  by_depth_[group(depth)].record(is_right, prob_by_confidence(guess));
  by_confidence_[rank][bucket(guess.confidence)].record(is_right, guess.confidence);
  means_[rank].record(is_right ? 1.0f : 0.0f);
}

}  // namespace pilotfish
