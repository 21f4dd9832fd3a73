#include "draft/medusa_rows.h"

#include <cassert>
#include <string>

namespace pilotfish {
namespace {

std::vector<RowGraph::Port> outputs_of(const HeadEntry& entry, const FloatRows& logits) {
  std::vector<RowGraph::Port> ports;
  for (int32_t level = 0; level < entry.num_predictions; ++level) {
    ports.emplace_back("logits." + std::to_string(level),
                       RowPort::Rows{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, logits.row(level), entry.num_logits, 1});
  }
  return ports;
}

}  // namespace

MedusaRows::MedusaRows(const Head& head, int32_t width, int32_t num_ids)
    : head_(head),
      streams_(head.device(), 1, width, head.entry().num_taps()),
      logits_(head.device(), head.entry().num_predictions, num_logits(), num_choices(*this, num_ids)),
      // Heads that share an output layer go through it as rows of one product.
      graph_(head, "heads", stream_ports(head.entry(), streams_), outputs_of(head.entry(), logits_.rows()), 1,
             head.entry().num_predictions) {}

uint64_t MedusaRows::num_bytes(const HeadEntry& entry, uint64_t width) noexcept {
  return FloatRows::num_bytes(1, entry.taps.size() * width + uint64_t(entry.num_predictions) * entry.num_logits);
}

void MedusaRows::run_begin() {
  graph_.run(1);
  logits_.read_likeliest(max_depth());
}

std::optional<Logits> MedusaRows::begin(const DraftRequest& request, Draft&) {
  const HeadState& state = *request.head_state;
  // Of the token before the last one, which no pass of the target has run yet.
  assert(state.position == int32_t(request.tokens.size()) - 2);
  streams_.take(0, *state.streams, 0, 1);
  graph_.run(1);
  levels_ = logits_.read(request, max_depth());
  return level(0, 1);
}

Logits MedusaRows::run_level(const DraftRequest&, const TokenTree& tree, std::span<const int32_t> level_tokens) {
  return level(tree[level_tokens[0]].depth, static_cast<int32_t>(level_tokens.size()));
}

Logits MedusaRows::level(int32_t depth, int32_t num_rows) const {
  Logits row = levels_;
  row.num_rows = num_rows;
  row.is_one_row = true;
  if (row.data) row.data = levels_.row(depth).data();
  if (!row.likeliest.empty()) row.likeliest = row.likeliest.subspan(depth, 1);
  return row;
}

}  // namespace pilotfish
