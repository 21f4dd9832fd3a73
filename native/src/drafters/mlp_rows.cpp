#include "drafters/mlp_rows.h"

#include <algorithm>
#include <cassert>
#include <string>

namespace pilotfish {
namespace {

constexpr size_t kState = 0, kIds = 1;         // inputs of a stage
constexpr size_t kLogits = 0, kNextState = 1;  // and its outputs

}  // namespace

MlpRows::MlpRows(const Head& head, int32_t width, int32_t max_rows)
    : head_(head), max_rows_(max_rows), states_(size_t(TreePass::kMaxRows) * head.entry().state_size) {
  using Type = RowGraph::Type;
  const HeadEntry& entry = head.entry();
  for (int32_t stage = 0; stage < entry.num_predictions; ++stage) {
    const RowGraph::Port state = stage == 0 ? RowGraph::Port{stream_name(entry.taps[0]), Type::kFloat, width}
                                            : RowGraph::Port{"state", Type::kFloat, entry.state_size};
    stages_.emplace_back(head, "stage." + std::to_string(stage),
                         std::vector<RowGraph::Port>{state, {"input_ids", Type::kInt32, 0}},
                         std::vector<RowGraph::Port>{{"logits", Type::kFloat, entry.num_logits},
                                                     {"next_state", Type::kFloat, entry.state_size}},
                         stage == 0 ? 1 : max_rows);
  }
}

uint64_t MlpRows::num_bytes(const HeadEntry& entry, uint64_t width, uint64_t max_rows) noexcept {
  const uint64_t state_size = entry.state_size, num_logits = entry.num_logits;
  const uint64_t first = width + 1 + num_logits + state_size, next = 2 * state_size + 1 + num_logits;
  return RowGraph::num_bytes(first, 1) + (entry.num_predictions - 1) * RowGraph::num_bytes(next, max_rows) +
         sizeof(float) * TreePass::kMaxRows * state_size;
}

std::optional<Logits> MlpRows::begin(const DraftRequest& request, Draft&) {
  const HeadState& last = *request.head_state;
  // Of the token before the last one, which no pass of the target has run yet.
  assert(last.position == int32_t(request.tokens.size()) - 2);
  std::copy(last.streams.begin(), last.streams.end(), stages_[0].input(kState).begin());
  stages_[0].ids(kIds)[0] = request.tokens.back();
  const Logits logits = run(0, 1);
  keep_state(0, 0, 0);
  return logits;
}

Logits MlpRows::run_level(const DraftRequest&, const TokenTree& tree, std::span<const int32_t> level) {
  const auto stage = size_t(tree[level[0]].depth);
  const auto state_size = size_t(head_.entry().state_size);
  for (size_t row = 0; row < level.size(); ++row) {
    const TreeToken& token = tree[level[row]];
    const std::span<float> before = state(token.parent == TokenTree::kRoot ? 0 : tree[token.parent].draft_row);
    std::copy(before.begin(), before.end(), stages_[stage].input(kState).begin() + row * state_size);
    stages_[stage].ids(kIds)[row] = token.id;
  }
  const Logits logits = run(stage, static_cast<int32_t>(level.size()));
  for (size_t row = 0; row < level.size(); ++row) {
    keep_state(tree[level[row]].draft_row, stage, static_cast<int32_t>(row));
  }
  return logits;
}

Logits MlpRows::run(size_t stage, int32_t num_rows) {
  stages_[stage].run(num_rows);
  return {.data = stages_[stage].output_row(kLogits, 0).data(), .num_rows = num_rows, .width = num_logits()};
}

std::span<float> MlpRows::state(int32_t draft_row) noexcept {
  const auto size = size_t(head_.entry().state_size);
  return std::span(states_).subspan(draft_row * size, size);
}

void MlpRows::keep_state(int32_t draft_row, size_t stage, int32_t row) {
  const std::span<const float> next = stages_[stage].output_row(kNextState, row);
  std::copy(next.begin(), next.end(), state(draft_row).begin());
}

}  // namespace pilotfish
