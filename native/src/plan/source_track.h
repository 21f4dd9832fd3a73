// What is known of a source of drafts that runs a model, a draft or a head: what its rounds gave and cost lately, and
// whether it has seemed worth its time. Time is counted by the costs, in plain rounds.
#pragma once

#include <cstdint>

#include "base/token_tree.h"
#include "plan/confidence_rates.h"
#include "plan/decayed_rate.h"
#include "plan/round_costs.h"

namespace pilotfish {

inline constexpr double kTakeUp = 1.04;  // how much faster than plain an idle source must seem to be taken up again
inline constexpr int32_t kProbeInterval = 24;  // rounds

class SourceTrack {
 public:
  // `costs` must outlive it. Begins with what such a source is usually worth, for a target with these costs.
  SourceTrack(Source source, const DraftCosts& costs, const PassCosts& verify, int32_t context) noexcept;

  Source source() const noexcept { return source_; }
  const DraftCosts& costs() const noexcept { return *costs_; }
  ConfidenceRates& rates() noexcept { return rates_; }
  const ConfidenceRates& rates() const noexcept { return rates_; }

  // Of a round that it drafts alone: tokens accepted, and time in plain rounds.
  float accepted() const noexcept { return accepted_.mean(); }
  float cost() const noexcept { return cost_.mean(); }
  void record_round(float accepted, double cost) noexcept;

  // Of a chain: the probability that a token is right, given those before it. Rounds count, not tokens: a round that
  // goes wrong shows one wrong token, a good one many right ones, and the last few are to decide.
  float right() const noexcept { return num_right_ / num_tried_; }
  // Of the round's chain, `num_tried` tokens followed right ones.
  void record_chain(int32_t num_right, int32_t num_tried) noexcept;

  // Whether it has drafted often enough to go by what came of it.
  bool is_known() const noexcept { return num_rounds_ >= kKnownRounds; }

  // Hysteresis: whether it is worth drafting, at this speed relative to plain decoding. An idle one must seem faster.
  bool is_worth(double speed) noexcept;
  // In a round that it is not to draft: whether it should be tried anew, if that can be afforded.
  bool is_probe_due(bool is_affordable) noexcept;
  // After a probe that gained: the next one follows at once.
  void probe_again() noexcept { rounds_without_ = kProbeInterval; }

 private:
  static constexpr int32_t kKnownRounds = 8;

  Source source_;
  const DraftCosts* costs_;
  ConfidenceRates rates_;
  DecayedRate accepted_;
  DecayedRate cost_;
  float num_right_, num_tried_;
  bool is_drafting_;
  int32_t num_rounds_ = 0;  // that it has drafted, up to kKnownRounds
  int32_t rounds_without_ = 0;
};

}  // namespace pilotfish
