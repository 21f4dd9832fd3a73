#include "draft/mlp_rows.h"

#include <array>
#include <cassert>
#include <string>

namespace pilotfish {

MlpRows::MlpRows(const Head& head, int32_t width, int32_t num_ids, int32_t max_rows)
    : head_(head),
      max_rows_(max_rows),
      ids_(max_rows),
      streams_(head.device(), 1, width, head.entry().num_taps()),
      state_(head.device(), max_rows, head.entry().state_size),
      next_state_(head.device(), max_rows, head.entry().state_size),
      logits_(head.device(), max_rows, num_logits(), num_choices(*this, num_ids)),
      states_(head.device(), TreePass::kMaxRows, head.entry().state_size) {
  const HeadEntry& entry = head.entry();
  void* ids = ids_.data();
  if (head.device()) {
    ids = device_ids_.emplace(head.device(), sizeof(int32_t) * max_rows).data();
    head.device()->upload(ids, ids_.data(), sizeof(int32_t) * max_rows);
  }
  const RowGraph::Port tokens("input_ids", RowPort::Rows{ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, ids, 0, max_rows});
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
                         stage == 0 ? 1 : max_rows);
  }
}

uint64_t MlpRows::num_bytes(const HeadEntry& entry, uint64_t width, uint64_t max_rows) noexcept {
  const uint64_t state_size = entry.state_size;
  return FloatRows::num_bytes(1, entry.taps.size() * width) +
         FloatRows::num_bytes(max_rows, 1 + 2 * state_size + entry.num_logits) +
         FloatRows::num_bytes(TreePass::kMaxRows, state_size);
}

std::optional<Logits> MlpRows::begin(const DraftRequest& request, Draft&) {
  const HeadState& last = *request.head_state;
  // Of the token before the last one, which no pass of the target has run yet.
  assert(last.position == int32_t(request.tokens.size()) - 2);
  streams_.take(0, *last.streams, 0, 1);
  ids_[0] = request.tokens.back();
  start(0, 1);
  states_.take(0, next_state_, 0, 1);
  return logits_.read(request, 1);
}

Logits MlpRows::run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) {
  const auto num_rows = static_cast<int32_t>(level.size());
  std::array<int32_t, TreePass::kMaxRows> parents;
  for (int32_t row = 0; row < num_rows; ++row) {
    const TreeToken& token = tree[level[row]];
    parents[row] = token.parent == TokenTree::kRoot ? 0 : tree[token.parent].draft_row;
    ids_[row] = token.id;
  }
  state_.take(0, states_, {parents.data(), level.size()});
  start(size_t(tree[level[0]].depth), num_rows);
  states_.take(tree[level[0]].draft_row, next_state_, 0, num_rows);
  return logits_.read(request, num_rows);
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
