#include "drafters/medusa_rows.h"

#include <algorithm>
#include <cassert>
#include <string>

namespace pilotfish {
namespace {

std::vector<RowGraph::Port> outputs_of(const HeadEntry& entry) {
  std::vector<RowGraph::Port> ports;
  for (int32_t head = 0; head < entry.num_predictions; ++head) {
    ports.push_back({"logits." + std::to_string(head), RowGraph::Type::kFloat, entry.num_logits});
  }
  return ports;
}

}  // namespace

MedusaRows::MedusaRows(const Head& head, int32_t width)
    : head_(head),
      graph_(head, "heads", {{stream_name(head.entry().taps[0]), RowGraph::Type::kFloat, width}},
             outputs_of(head.entry()), 1) {}

uint64_t MedusaRows::num_bytes(const HeadEntry& entry, uint64_t width) noexcept {
  return RowGraph::num_bytes(width + uint64_t(entry.num_predictions) * entry.num_logits, 1);
}

std::optional<Logits> MedusaRows::begin(const DraftRequest& request, Draft&) {
  const HeadState& state = *request.head_state;
  // Of the token before the last one, which no pass of the target has run yet.
  assert(state.position == int32_t(request.tokens.size()) - 2);
  std::copy(state.streams.begin(), state.streams.end(), graph_.input(0).begin());
  graph_.run(1);
  return Logits{.data = graph_.output_row(0, 0).data(), .num_rows = 1, .width = num_logits()};
}

Logits MedusaRows::run_level(const DraftRequest&, const TokenTree& tree, std::span<const int32_t> level) {
  const int32_t depth = tree[level[0]].depth;
  return {.data = graph_.output_row(depth, 0).data(),
          .num_rows = static_cast<int32_t>(level.size()),
          .width = num_logits(),
          .is_one_row = true};
}

}  // namespace pilotfish
