#include "plan/source_track.h"

#include <algorithm>

namespace pilotfish {
namespace {

constexpr float kGuessedAcceptance = 0.6f;  // of a token, until some were seen
constexpr float kGuessedRounds = 4;         // that the guess counts as much as
constexpr int32_t kMostGuessed = 8;
constexpr float kRememberedRounds = 20;

constexpr float kGuessedRight = 0.62f;      // of a chain's tokens, until some were seen
constexpr float kGuessedTokens = 8;         // that the guess counts as much as
constexpr float kRememberedChains = 32;     // rounds
constexpr float kForgottenIdle = 1 / 40.f;  // of what is known, by a round that the source is not to draft

}  // namespace

SourceTrack::SourceTrack(Source source, const DraftCosts& costs, const PassCosts& verify, int32_t context) noexcept
    : source_(source),
      costs_(&costs),
      accepted_(0, kGuessedRounds, kRememberedRounds),
      cost_(1, kGuessedRounds, kRememberedRounds),
      num_right_(kGuessedRight * kGuessedTokens),
      num_tried_(kGuessedTokens) {
  const double plain = verify.at(1, context);
  double best_rate = 0;
  float tokens = 1;
  float path = 1;
  for (int32_t num_drafted = 1; num_drafted <= kMostGuessed; ++num_drafted) {
    tokens += path *= kGuessedAcceptance;
    const double seconds = verify.at(1 + num_drafted, context) + costs.drafting(1, num_drafted, 1, context);
    if (tokens / seconds <= best_rate) break;
    best_rate = tokens / seconds;
    accepted_ = DecayedRate(tokens - 1, kGuessedRounds, kRememberedRounds);
    cost_ = DecayedRate(static_cast<float>(seconds / plain), kGuessedRounds, kRememberedRounds);
  }
  is_drafting_ = best_rate * plain > 1;
}

void SourceTrack::record_round(float accepted, double cost) noexcept {
  accepted_.record(accepted);
  cost_.record(static_cast<float>(cost));
  rounds_without_ = 0;
  num_rounds_ = std::min(num_rounds_ + 1, kKnownRounds);
}

void SourceTrack::record_chain(int32_t num_right, int32_t num_tried) noexcept {
  const float kept = 1 - 1 / kRememberedChains;
  num_right_ = num_right_ * kept + static_cast<float>(num_right);
  num_tried_ = num_tried_ * kept + static_cast<float>(num_tried);
}

bool SourceTrack::is_worth(double speed) noexcept {
  is_drafting_ = speed > (is_drafting_ ? 1 : kTakeUp);
  return is_drafting_;
}

// What the source was worth counts the less the longer ago that was.
bool SourceTrack::is_probe_due(bool is_affordable) noexcept {
  if (num_tried_ > kGuessedTokens) {
    num_right_ *= 1 - kForgottenIdle;
    num_tried_ *= 1 - kForgottenIdle;
  }
  if (++rounds_without_ < kProbeInterval || !is_affordable) return false;
  rounds_without_ = 0;
  return true;
}

}  // namespace pilotfish
