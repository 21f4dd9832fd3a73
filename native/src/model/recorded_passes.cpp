#include "model/recorded_passes.h"

#include <algorithm>

#include "device/chain_lengths.h"

namespace pilotfish {

void RecordedPasses::run(const PassShape& shape, const Enqueue& enqueue) {
  ++now_;
  Pass& pass = found(shape);
  if (!pass.graph && takes_place(pass)) pass.graph = record_(enqueue);
  if (pass.graph) {
    pass.graph->launch();
  } else {
    enqueue();
    if (pass.num_counted++ == 0) pass.first_counted = now_;
  }
  pass.last = now_;
}

RecordedPasses::Pass& RecordedPasses::found(const PassShape& shape) {
  const auto place = std::ranges::find(passes_, shape, &Pass::shape);
  if (place != passes_.end()) return *place;
  passes_.push_back({.shape = shape});
  return passes_.back();
}

bool RecordedPasses::takes_place(Pass& pass) {
  if (pass.num_counted + 1 < kPassesBeforeRecording) return false;
  const auto is_recorded = [](const Pass& each) { return each.graph != nullptr; };
  if (std::ranges::count_if(passes_, is_recorded) < kMostRecordedShapes) return true;
  Pass* oldest = nullptr;
  for (Pass& each : passes_) {
    if (each.graph && (oldest == nullptr || each.last < oldest->last)) oldest = &each;
  }
  if (oldest->last > pass.first_counted) {
    pass.num_counted = 0;  // counted anew, this one first
    return false;
  }
  oldest->graph.reset();
  oldest->num_counted = 0;
  return true;
}

}  // namespace pilotfish
