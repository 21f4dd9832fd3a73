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
    forget_oldest(last.kind.num_bytes(pass_));
    last.graph = record_(enqueue);
  }
  return *last.graph;
}

uint64_t RecordedRounds::num_bytes() const noexcept {
  uint64_t num_bytes = 0;
  for (const Recorded& round : rounds_) num_bytes += round.graph ? round.kind.num_bytes(pass_) : 0;
  return num_bytes;
}

void RecordedRounds::forget_oldest(uint64_t num_new_bytes) {
  for (Recorded& round : rounds_) {
    if (num_bytes() + num_new_bytes <= most_bytes_) return;
    round.graph.reset();
  }
}

}  // namespace pilotfish
