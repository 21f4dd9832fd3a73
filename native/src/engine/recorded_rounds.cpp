#include "engine/recorded_rounds.h"

#include <algorithm>

namespace pilotfish {

void RecordedRounds::run(RoundKind kind, const Enqueue& enqueue) {
  const auto found = std::ranges::find(rounds_, kind, &Recorded::kind);
  if (found == rounds_.end()) {
    enqueue();
    rounds_.push_back({kind, nullptr});
    return;
  }
  std::rotate(found, found + 1, rounds_.end());
  recorded(enqueue).launch();
}

void RecordedRounds::record(RoundKind kind, const Enqueue& enqueue) {
  const auto found = std::ranges::find(rounds_, kind, &Recorded::kind);
  if (found == rounds_.end()) {
    rounds_.push_back({kind, nullptr});
  } else {
    std::rotate(found, found + 1, rounds_.end());
  }
  recorded(enqueue);
}

CudaGraph& RecordedRounds::recorded(const Enqueue& enqueue) {
  Recorded& last = rounds_.back();
  if (!last.graph) {
    forget_oldest(last.kind.num_passes());
    last.graph = record_(enqueue);
  }
  return *last.graph;
}

int32_t RecordedRounds::num_passes() const noexcept {
  int32_t num_passes = 0;
  for (const Recorded& round : rounds_) num_passes += round.graph ? round.kind.num_passes() : 0;
  return num_passes;
}

void RecordedRounds::forget_oldest(int32_t num_new_passes) {
  for (Recorded& round : rounds_) {
    if (num_passes() + num_new_passes <= most_passes_) return;
    round.graph.reset();
  }
}

}  // namespace pilotfish
