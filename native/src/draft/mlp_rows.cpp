#include "draft/mlp_rows.h"

#include <algorithm>
#include <array>
#include <string>

namespace pilotfish {

MlpRows::MlpRows(const Head& head, int32_t width, int32_t num_ids, const ModelLimits& limits)
    : head_(head),
      max_rows_(limits.max_outputs),
      ids_(max_rows_),
      streams_(head.device(), limits.max_seqs, width, head.entry().num_taps()),
      state_(head.device(), max_rows_, head.entry().state_size),
      next_state_(head.device(), max_rows_, head.entry().state_size),
      logits_(head.device(), max_rows_, max_rows_, num_logits(), num_choices(*this, num_ids)),
      states_(head.device(), limits.max_seqs * TreePass::kMaxRows, head.entry().state_size) {
  const HeadEntry& entry = head.entry();
  void* ids = ids_.data();
  if (head.device()) {
    ids = device_ids_.emplace(head.device(), sizeof(int32_t) * max_rows_).data();
    head.device()->upload(ids, ids_.data(), sizeof(int32_t) * max_rows_);
  }
  const RowGraph::Port tokens("input_ids", RowPort::Rows{ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, ids, 0, max_rows_});
  for (int32_t stage = 0; stage < entry.num_predictions; ++stage) {
    std::vector<RowGraph::Port> inputs;
    if (stage == 0) {
      inputs = stream_ports(entry, streams_);
    } else {
      inputs.emplace_back("state", state_);
    }
    inputs.push_back(tokens);
    stages_.emplace_back(head, "stage." + std::to_string(stage), inputs,
                         std::vector<RowGraph::Port>{{"logits", logits_.rows()}, {"next_state", next_state_}},
                         stage == 0 ? limits.max_seqs : max_rows_);
  }
}

uint64_t MlpRows::num_bytes(const HeadEntry& entry, uint64_t width, uint64_t max_rows,
                            uint64_t most_together) noexcept {
  const uint64_t state_size = entry.state_size;
  return FloatRows::num_bytes(max_rows, 1 + 2 * state_size + entry.num_logits) +
         FloatRows::num_bytes(most_together, entry.taps.size() * width + TreePass::kMaxRows * state_size);
}

std::optional<Logits> MlpRows::begin(const DraftRequest& request, Draft&) {
  ids_[0] = take_last(request, streams_, 0).ids.back();
  start(0, 1);
  keep_shared({0, 0}, 0, 1);
  return logits_.read(request, 1);
}

Logits MlpRows::run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) {
  const auto num_rows = static_cast<int32_t>(level.size());
  for (int32_t row = 0; row < num_rows; ++row) ids_[row] = tree[level[row]].id;
  fill_shared({0, 0}, tree, level, 0);
  start(size_t(tree[level[0]].depth), num_rows);
  keep_shared({0, tree[level[0]].draft_row}, 0, num_rows);
  return logits_.read(request, num_rows);
}

void MlpRows::fill_shared(DraftRow row, const TokenTree& tree, std::span<const int32_t> level, int32_t first_row) {
  std::array<int32_t, TreePass::kMaxRows> parents;
  for (size_t i = 0; i < level.size(); ++i) {
    const int32_t parent = tree[level[i]].parent;
    parents[i] = row.slot * TreePass::kMaxRows + (parent == TokenTree::kRoot ? 0 : tree[parent].draft_row);
  }
  state_.take(first_row, states_, {parents.data(), level.size()});
}

void MlpRows::keep_shared(DraftRow row, int32_t first_output, int32_t num_outputs) {
  states_.take(row.slot * TreePass::kMaxRows + row.row, next_state_, first_output, num_outputs);
}

Logits MlpRows::run_shared(SharedPass& pass, const DraftRequest& request, int32_t depth) {
  std::ranges::copy(pass.pass().ids, ids_.begin());
  start(size_t(depth), pass.num_rows());
  return logits_.read(request, pass.num_rows());
}

void MlpRows::start(size_t stage, int32_t num_rows) {
  if (device_ids_) head_.device()->upload(device_ids_->data(), ids_.data(), sizeof(int32_t) * num_rows);
  stages_[stage].run(num_rows);
}

void MlpRows::run(size_t stage, int32_t num_rows) {
  start(stage, num_rows);
  logits_.read_likeliest(num_rows);
}

}  // namespace pilotfish
