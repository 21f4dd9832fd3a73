// What is known of a source of drafts that runs a model, a draft or a head: what its rounds gave and cost lately, and
// whether it has seemed worth its time. Time is counted by the costs, in plain rounds.
#pragma once

#include <cstdint>

#include "base/token_tree.h"
#include "plan/confidence_rates.h"
#include "plan/decayed_rate.h"
#include "plan/round_costs.h"

namespace pilotfish {

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

  // Hysteresis: whether it is worth drafting, at this speed relative to plain decoding. An idle one must seem faster.
  bool is_worth(double speed) noexcept;
  // In a round that it is not to draft: whether it should be tried anew, if that can be afforded.
  bool is_probe_due(bool is_affordable) noexcept;

 private:
  Source source_;
  const DraftCosts* costs_;
  ConfidenceRates rates_;
  DecayedRate accepted_;
  DecayedRate cost_;
  bool is_drafting_;
  int32_t rounds_without_ = 0;
};

}  // namespace pilotfish
