#include "control/source_track.h"

#include <algorithm>

namespace pilotfish {
namespace {

constexpr float kGuessedAcceptance = 0.6f;  // of a token, until some were seen
constexpr float kGuessedRounds = 4;         // that the guess counts as much as
constexpr int32_t kMostGuessed = 8;
constexpr float kRememberedRounds = 20;
constexpr int32_t kLeastRounds = 3;      // of a request that says something about others
constexpr float kShareOfRequest = 0.3f;  // of the newest one in what is remembered

constexpr double kTakeUp = 1.04;  // how much faster than plain an idle source must seem to be taken up again
constexpr int32_t kFirstProbe = 16;
constexpr int32_t kMostProbeRounds = 256;
constexpr int32_t kRoundsAProbe = 3;

}  // namespace

SourceTrack::SourceTrack(Source source, const DraftCosts& costs, const PassCosts& verify, int32_t context) noexcept
    : source_(source),
      costs_(&costs),
      accepted_(0, kGuessedRounds, kRememberedRounds),
      cost_(1, kGuessedRounds, kRememberedRounds),
      probe_interval_(kFirstProbe) {
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
  guess_ = {accepted_.mean(), cost_.mean()};
  is_drafting_ = best_rate * plain > 1;
}

void SourceTrack::record_round(float accepted, double cost) noexcept {
  accepted_.record(accepted);
  cost_.record(static_cast<float>(cost));
  sums_ = {sums_.accepted + accepted, sums_.cost + static_cast<float>(cost)};
  ++num_rounds_;
}

void SourceTrack::recall(const DraftMemory::Experience& experience) noexcept {
  const DraftMemory::Worth& worth = experience.worth;
  accepted_ = DecayedRate(worth.accepted, kGuessedRounds, kRememberedRounds);
  cost_ = DecayedRate(worth.cost, kGuessedRounds, kRememberedRounds);
  is_drafting_ = 1 + worth.accepted > worth.cost;
  rates_ = experience.rates.faded();
}

void SourceTrack::remember(std::optional<DraftMemory::Experience>& experience) const noexcept {
  if (num_rounds_ < kLeastRounds) return;
  const DraftMemory::Worth before = experience ? experience->worth : guess_;
  const auto num_rounds = static_cast<float>(num_rounds_);
  const float share = experience ? kShareOfRequest : num_rounds / (num_rounds + kGuessedRounds);
  const DraftMemory::Worth worth = {before.accepted + share * (sums_.accepted / num_rounds - before.accepted),
                                    before.cost + share * (sums_.cost / num_rounds - before.cost)};
  experience = {worth, rates_};
}

bool SourceTrack::is_worth(double speed) noexcept {
  is_drafting_ = speed > (is_drafting_ ? 1 : kTakeUp);
  if (is_drafting_) probe_interval_ = kFirstProbe;
  return is_drafting_;
}

bool SourceTrack::is_probe_due(bool is_affordable) noexcept {
  if (probe_rounds_left_ > 0) {
    --probe_rounds_left_;
    return true;
  }
  if (++rounds_without_ < probe_interval_ || !is_affordable) return false;
  rounds_without_ = 0;
  probe_interval_ = std::min(2 * probe_interval_, kMostProbeRounds);
  probe_rounds_left_ = kRoundsAProbe - 1;
  return true;
}

}  // namespace pilotfish
