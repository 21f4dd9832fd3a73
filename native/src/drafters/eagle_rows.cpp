#include "drafters/eagle_rows.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace pilotfish {
namespace {

std::vector<RowGraph::Port> stream_ports(const HeadEntry& entry, int32_t width) {
  std::vector<RowGraph::Port> ports;
  for (const int32_t tap : entry.taps) {
    ports.push_back({stream_name(tap), RowGraph::Type::kFloat, width});
  }
  return ports;
}

ModelLimits step_limits(ModelLimits limits) {
  limits.max_rows = EagleRows::kMaxRows;
  return limits;
}

}  // namespace

EagleRows::EagleRows(const Head& head, int32_t width, const ModelLimits& target_limits)
    : head_(head),
      num_taps_(static_cast<int32_t>(head.entry().taps.size())),
      width_(width),
      features_(head, "features", stream_ports(head.entry(), width),
                {{"features", RowGraph::Type::kFloat, head.entry().state_size}}, kMaxRows),
      step_(head, step_limits(target_limits)),
      drafted_(size_t(kMaxRows) * head.entry().state_size) {}

uint64_t EagleRows::num_bytes(const HeadEntry& entry, uint64_t width, uint64_t max_outputs) noexcept {
  return RowGraph::num_bytes(entry.taps.size() * width + 2 * uint64_t(entry.state_size), kMaxRows) +
         StepGraph::num_bytes(entry, kMaxRows, max_outputs);
}

uint64_t EagleRows::state_bytes(const HeadEntry& entry, uint64_t width) noexcept {
  return sizeof(float) * kMaxRows * entry.taps.size() * width;
}

HeadState EagleRows::make_state() const {
  HeadState state;
  state.streams.resize(size_t(kMaxRows) * num_taps_ * width_);
  return state;
}

void EagleRows::observe(const HeadRows& pass, HeadState& state) {
  assert(pass.position == state.position + state.num_rows);
  const auto num_tokens = static_cast<int32_t>(pass.tokens.size());
  const size_t row_width = size_t(num_taps_) * width_;
  for (const int32_t row : pass.rows) {
    if (state.num_rows == kMaxRows) {
      const int32_t num_ready = std::min(state.num_rows, num_tokens - 1 - state.position);
      catch_up(state, pass.tokens, pass.block_table, num_ready, 0);
    }
    float* const out = state.streams.data() + size_t(state.num_rows++) * row_width;
    for (int32_t tap = 0; tap < num_taps_; ++tap) {
      const std::span<const float> stream = pass.hidden.row(tap, row);
      std::copy(stream.begin(), stream.end(), out + size_t(tap) * width_);
    }
  }
}

Logits EagleRows::catch_up(HeadState& state, std::span<const int32_t> tokens, std::span<const int32_t> block_table,
                           int32_t num_rows, int32_t num_outputs) {
  assert(num_rows >= 1 && num_rows <= state.num_rows && state.position + num_rows < int32_t(tokens.size()));
  const size_t row_width = size_t(num_taps_) * width_;
  for (int32_t tap = 0; tap < num_taps_; ++tap) {
    float* out = features_.input(tap).data();
    for (int32_t row = 0; row < num_rows; ++row, out += width_) {
      std::copy_n(state.streams.data() + row * row_width + size_t(tap) * width_, width_, out);
    }
  }
  features_.run(num_rows);
  for (int32_t row = 0; row < num_rows; ++row) {
    const std::span<const float> feature = features_.output_row(0, row);
    std::copy(feature.begin(), feature.end(), step_.features(row).begin());
  }
  const Logits logits = step_.forward({.ids = tokens.subspan(state.position + 1, num_rows),
                                       .positions = {},
                                       .tree_mask = {},
                                       .block_table = block_table,
                                       .context = state.position,
                                       .num_outputs = num_outputs});
  std::copy(state.streams.begin() + num_rows * row_width, state.streams.begin() + state.num_rows * row_width,
            state.streams.begin());
  state.position += num_rows;
  state.num_rows -= num_rows;
  return logits;
}

std::optional<Logits> EagleRows::begin(const DraftRequest& request, Draft&) {
  HeadState& state = *request.head_state;
  // All but the last token's row, which no pass of the target has run yet.
  assert(state.position + state.num_rows == int32_t(request.tokens.size()) - 1);
  const Logits logits = catch_up(state, request.tokens, request.block_table, state.num_rows, 1);
  keep_feature(0, 0);
  return logits;
}

Logits EagleRows::run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) {
  const auto state_size = size_t(head_.entry().state_size);
  for (size_t i = 0; i < level.size(); ++i) {
    const int32_t parent = tree[level[i]].parent;
    const int32_t row = parent == TokenTree::kRoot ? 0 : tree[parent].draft_row;
    std::copy_n(drafted_.data() + row * state_size, state_size, step_.features(static_cast<int32_t>(i)).begin());
  }
  const auto last_row = static_cast<int32_t>(request.tokens.size()) - 2;
  TreePass pass = level_pass(tree, level);
  const Logits logits = step_.forward(pass.at(request.block_table, last_row));
  for (size_t i = 0; i < level.size(); ++i) keep_feature(tree[level[i]].draft_row, static_cast<int32_t>(i));
  return logits;
}

void EagleRows::keep_feature(int32_t draft_row, int32_t output) {
  const std::span<const float> feature = step_.next_features(output);
  std::copy(feature.begin(), feature.end(), drafted_.begin() + size_t(draft_row) * feature.size());
}

void EagleRows::run_begin(int32_t num_rows, int32_t context, std::span<const int32_t> block_table) {
  const std::array<int32_t, kMaxRows> ids{};
  for (int32_t begin = 0; begin < num_rows; begin += kMaxRows) {
    const int32_t count = std::min(num_rows - begin, kMaxRows);
    features_.run(count);
    step_.forward({.ids = std::span(ids).first(count),
                   .positions = {},
                   .tree_mask = {},
                   .block_table = block_table,
                   .context = context + begin,
                   .num_outputs = begin + count == num_rows ? 1 : 0});
  }
}

void EagleRows::run_level(int32_t num_rows, int32_t context, std::span<const int32_t> block_table) {
  const std::array<int32_t, kMaxRows> ids{};
  step_.forward({.ids = std::span(ids).first(num_rows),
                 .positions = {},
                 .tree_mask = {},
                 .block_table = block_table,
                 .context = context,
                 .num_outputs = num_rows});
}

}  // namespace pilotfish
