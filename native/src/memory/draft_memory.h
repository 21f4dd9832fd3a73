// What the requests that the controller decides for leave to later ones of the same engine. The tokens that come out do
// not depend on it, only how soon drafting is tried and taken up: the catching up of a draft with a prompt may cost
// more than one short output can risk.
#pragma once

#include <optional>

#include "control/confidence_rates.h"
#include "tree/token_tree.h"

namespace pilotfish {

struct DraftMemory {
  // Of the rounds of a source that runs a model: tokens accepted, and time in plain rounds.
  struct Worth {
    float accepted;
    float cost;
  };

  struct Experience {
    Worth worth;
    ConfidenceRates rates;
  };

  double credit = 0;  // plain rounds that trials may still lose
  std::optional<Experience> draft, head;

  std::optional<Experience>& of(Source source) noexcept { return source == Source::kHead ? head : draft; }
};

}  // namespace pilotfish
