#include "draft/medusa_rows.h"

#include <algorithm>
#include <string>

namespace pilotfish {
namespace {

std::vector<RowGraph::Port> outputs_of(const HeadEntry& entry, const FloatRows& logits) {
  std::vector<RowGraph::Port> ports;
  for (int32_t level = 0; level < entry.num_predictions; ++level) {
    ports.emplace_back(
        "logits." + std::to_string(level),
        RowPort::Rows{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, logits.row(0), entry.num_logits, logits.max_rows()}, level);
  }
  return ports;
}

}  // namespace

MedusaRows::MedusaRows(const Head& head, int32_t width, int32_t num_ids, int32_t most_together)
    : head_(head),
      most_together_(most_together),
      streams_(head.device(), most_together, width, head.entry().num_taps()),
      logits_(head.device(), head.entry().num_predictions * most_together,
              std::max(head.entry().num_predictions, most_together), num_logits(), num_choices(*this, num_ids)),
      // Heads that share an output layer go through it as rows of one product.
      graph_(head, "heads", stream_ports(head.entry(), streams_), outputs_of(head.entry(), logits_.rows()),
             most_together, head.entry().num_predictions),
      row_of_slot_(most_together) {}

uint64_t MedusaRows::num_bytes(const HeadEntry& entry, uint64_t width, uint64_t most_together) noexcept {
  const uint64_t columns = entry.taps.size() * width + uint64_t(entry.num_predictions) * entry.num_logits;
  return FloatRows::num_bytes(most_together, columns);
}

void MedusaRows::run_begin(int32_t num_rows) {
  graph_.run(num_rows);
  if (num_rows == 1) {
    logits_.read_likeliest(max_depth());
    return;
  }
  for (int32_t level = 0; level < max_depth(); ++level) logits_.read_likeliest(num_rows, level * num_rows);
}

std::optional<Logits> MedusaRows::begin(const DraftRequest& request, Draft&) {
  take_last(request, streams_, 0);
  graph_.run(1);
  levels_ = logits_.read(request, max_depth());
  return level(0, 1);
}

Logits MedusaRows::run_level(const DraftRequest&, const TokenTree& tree, std::span<const int32_t> level_tokens) {
  return level(tree[level_tokens[0]].depth, static_cast<int32_t>(level_tokens.size()));
}

void MedusaRows::keep_shared(DraftRow row, int32_t first_output, int32_t) {
  if (row.row == 0) row_of_slot_[row.slot] = first_output;
}

void MedusaRows::fill_shared(DraftRow row, const TokenTree&, std::span<const int32_t> level, int32_t first_row) {
  std::fill_n(row_of_output_.begin() + first_row, level.size(), row_of_slot_[row.slot]);
}

// Only the first pass runs anything.
Logits MedusaRows::run_shared(SharedPass& pass, const DraftRequest& request, int32_t depth) {
  if (depth == 0) {
    num_together_ = pass.num_rows();
    graph_.run(num_together_);
    return logits_.read(request, num_together_);
  }
  Logits rows = logits_.read(request, num_together_, depth * num_together_);
  rows.row_of = row_of_output_;
  return rows;
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
