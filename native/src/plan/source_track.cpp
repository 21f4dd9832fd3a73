#include "plan/source_track.h"

#include <algorithm>

namespace pilotfish {
namespace {

constexpr float kGuessedAcceptance = 0.6f;  // of a token, until some were seen
constexpr float kGuessedRounds = 4;         // that the guess counts as much as
constexpr int32_t kMostGuessed = 8;
constexpr float kRememberedRounds = 20;

constexpr double kTakeUp = 1.04;        // how much faster than plain an idle source must seem to be taken up again
constexpr int32_t kProbeInterval = 24;  // rounds

}  // namespace

SourceTrack::SourceTrack(Source source, const DraftCosts& costs, const PassCosts& verify, int32_t context) noexcept
    : source_(source),
      costs_(&costs),
      accepted_(0, kGuessedRounds, kRememberedRounds),
      cost_(1, kGuessedRounds, kRememberedRounds) {
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
}

bool SourceTrack::is_worth(double speed) noexcept {
  is_drafting_ = speed > (is_drafting_ ? 1 : kTakeUp);
  return is_drafting_;
}

bool SourceTrack::is_probe_due(bool is_affordable) noexcept {
  if (++rounds_without_ < kProbeInterval || !is_affordable) return false;
  rounds_without_ = 0;
  return true;
}

}  // namespace pilotfish
