// What the requests that the controller decides for leave to later ones of the same engine. The tokens that come out do
// not depend on it, only how soon drafting is tried and taken up.
#pragma once

#include <optional>

#include "plan/source_track.h"

namespace pilotfish {

struct DraftMemory {
  static constexpr double kFirstCredit = 4;

  double credit = kFirstCredit;            // plain rounds that trials may still lose
  std::optional<SourceTrack> draft, head;  // none: it has not been tried

  std::optional<SourceTrack>& of(Source source) noexcept { return source == Source::kHead ? head : draft; }
};

}  // namespace pilotfish
