#include "draft/eagle_rows.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace pilotfish {
namespace {

ModelLimits step_limits(ModelLimits limits) {
  limits.max_rows = EagleRows::kMaxRows;
  limits.max_hidden = 0;
  return limits;
}

}  // namespace

EagleRows::EagleRows(const Head& head, int32_t width, int32_t num_ids, const ModelLimits& target_limits)
    : head_(head),
      num_taps_(head.entry().num_taps()),
      width_(width),
      step_(head, step_limits(target_limits)),
      streams_(head.device(), kMaxRows, width, num_taps_),
      features_(head, "features", stream_ports(head.entry(), streams_), {{"features", step_.features()}}, kMaxRows),
      drafted_(head.device(), target_limits.max_seqs * kMaxRows, head.entry().state_size),
      begun_(kMaxRows, target_limits.max_seqs, target_limits.max_seqs) {
  if (head.device()) likely_.emplace(head.device(), num_logits(), num_choices(*this, num_ids));
}

uint64_t EagleRows::num_bytes(const HeadEntry& entry, uint64_t width, uint64_t max_outputs,
                              uint64_t num_sharing) noexcept {
  const uint64_t state_size = entry.state_size;
  return FloatRows::num_bytes(kMaxRows, entry.taps.size() * width + (1 + num_sharing) * state_size) +
         FloatRows::num_bytes(max_outputs, state_size + entry.num_logits);
}

uint64_t EagleRows::state_bytes(const HeadEntry& entry, uint64_t width) noexcept {
  return FloatRows::num_bytes(kMaxRows, entry.taps.size() * width);
}

HeadState EagleRows::make_state() const {
  HeadState state;
  state.streams = std::make_unique<FloatRows>(head_.device(), kMaxRows, width_, num_taps_);
  return state;
}

void EagleRows::observe(const HeadRows& pass, HeadState& state) {
  assert(pass.position == state.position + state.num_rows);
  for (std::span<const int32_t> rows = pass.rows; !rows.empty();) {
    if (state.num_rows == kMaxRows) catch_up({&state, pass.tokens, pass.block_table});
    const auto num_taken = std::min(rows.size(), size_t(kMaxRows - state.num_rows));
    state.streams->take(state.num_rows, pass.hidden.streams, rows.first(num_taken));
    state.num_rows += static_cast<int32_t>(num_taken);
    state.num_begun = 0;
    rows = rows.subspan(num_taken);
  }
}

void EagleRows::catch_up(const HeadBegin& sequence) {
  const HeadState& state = *sequence.state;
  const int32_t num_ready = std::min(state.num_rows, static_cast<int32_t>(sequence.tokens.size()) - 1 - state.position);
  if (num_ready > 0) step_.forward(catch_up(sequence, num_ready, 0));
}

Pass EagleRows::take(HeadState& state, std::span<const int32_t> tokens, std::span<const int32_t> block_table,
                     int32_t num_rows, int32_t num_outputs, int32_t first_row) {
  assert(num_rows >= 1 && num_rows <= state.num_rows && state.position + num_rows < int32_t(tokens.size()));
  streams_.take(first_row, *state.streams, 0, num_rows);
  state.streams->take(0, *state.streams, num_rows, state.num_rows - num_rows);
  const Pass pass{.ids = tokens.subspan(state.position + 1, num_rows),
                  .positions = {},
                  .tree_mask = {},
                  .block_table = block_table,
                  .context = state.position,
                  .num_outputs = num_outputs};
  state.position += num_rows;
  state.num_rows -= num_rows;
  state.num_begun = state.num_rows == 0 ? num_rows : 0;
  return pass;
}

Pass EagleRows::catch_up(const HeadBegin& sequence, int32_t num_rows, int32_t num_outputs) {
  const Pass pass = take(*sequence.state, sequence.tokens, sequence.block_table, num_rows, num_outputs);
  features_.run(num_rows);
  return pass;
}

// What several have to read differs from round to round: rows of no sequence fill the pass up to one of a few sizes,
// which are recorded. They are those at which linears begin to cost more.
void EagleRows::start(std::span<const HeadBegin> sequences) {
  if (sequences.size() == 1) return step_.start(catch_up(sequences[0], sequences[0].state->num_rows, 1));
  constexpr int32_t kLeastRows = 8;
  make_room(sequences);
  begun_.clear();
  int32_t longest = 0;
  for (const auto& [state, tokens, block_table] : sequences) {
    longest = std::max(longest, state->num_rows);
    begun_.add(take(*state, tokens, block_table, state->num_rows, 1, begun_.num_rows()));
  }
  int32_t num_rows = kLeastRows;
  while (num_rows < begun_.num_rows()) num_rows *= 2;
  // A device is told that no sequence has more rows than the next multiple of 8, which bounds the rows of all.
  const auto num_sequences = static_cast<int32_t>(sequences.size());
  num_rows = std::min(num_rows, num_sequences * ((longest + kLeastRows - 1) / kLeastRows * kLeastRows));
  features_.run(num_rows);
  begun_.start(step_, num_rows);
}

void EagleRows::make_room(std::span<const HeadBegin> sequences) {
  for (;;) {
    int32_t num_rows = 0;
    for (const HeadBegin& sequence : sequences) num_rows += sequence.state->num_rows;
    if (num_rows <= kMaxRows) return;
    const HeadBegin& longest =
        *std::ranges::max_element(sequences, {}, [](const HeadBegin& each) { return each.state->num_rows; });
    step_.forward(catch_up(longest, longest.state->num_rows - 1, 0));
  }
}

std::optional<Logits> EagleRows::begin(const DraftRequest& request, Draft&) {
  HeadState& state = *request.head_state;
  // All but the last token's row, which no pass of the target has run yet.
  assert(state.position + state.num_rows == int32_t(request.tokens.size()) - 1);
  return run(request, catch_up({&state, request.tokens, request.block_table}, state.num_rows, 1), 0);
}

Pass EagleRows::share_begin(const DraftRequest& request, Draft&, int32_t first_row) {
  HeadState& state = *request.head_state;
  return take(state, request.tokens, request.block_table, state.num_rows, 1, first_row);
}

Pass EagleRows::share_level(const DraftRequest& request, TreePass& rows) {
  return rows.at(request.block_table, static_cast<int32_t>(request.tokens.size()) - 2);
}

void EagleRows::fill_shared(DraftRow row, const TokenTree& tree, std::span<const int32_t> level, int32_t first_row) {
  std::array<int32_t, kMaxRows> parents;
  for (size_t i = 0; i < level.size(); ++i) {
    const int32_t parent = tree[level[i]].parent;
    parents[i] = row.slot * kMaxRows + (parent == TokenTree::kRoot ? 0 : tree[parent].draft_row);
  }
  step_.features().take(first_row, drafted_, {parents.data(), level.size()});
}

void EagleRows::keep_shared(DraftRow row, int32_t first_output, int32_t num_outputs) {
  drafted_.take(row.slot * kMaxRows + row.row, step_.next_features(), first_output, num_outputs);
}

Logits EagleRows::run_shared(SharedPass& pass, const DraftRequest& request, int32_t depth) {
  if (likely_ && pass.num_sequences() > 1) pass.fill_up();
  if (depth == 0) features_.run(pass.num_rows());
  return run_pass(step_, likely_ ? &*likely_ : nullptr, request, pass.pass());
}

Logits EagleRows::run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) {
  fill_shared({0, 0}, tree, level, 0);
  TreePass pass = level_pass(tree, level);
  return run(request, share_level(request, pass), tree[level[0]].draft_row);
}

Logits EagleRows::run(const DraftRequest& request, const Pass& pass, int32_t draft_row) {
  const Logits logits = run_pass(step_, likely_ ? &*likely_ : nullptr, request, pass);
  keep_shared({0, draft_row}, 0, pass.num_outputs);
  return logits;
}

void EagleRows::run_begin(int32_t num_rows, int32_t context, std::span<const int32_t> block_table) {
  for (int32_t begin = 0; begin < num_rows; begin += kMaxRows) {
    const int32_t count = std::min(num_rows - begin, kMaxRows);
    features_.run(count);
    time(count, context + begin, block_table, begin + count == num_rows ? 1 : 0);
  }
}

void EagleRows::run_level(int32_t num_rows, int32_t context, std::span<const int32_t> block_table) {
  time(num_rows, context, block_table, num_rows);
}

void EagleRows::time(int32_t num_rows, int32_t context, std::span<const int32_t> block_table, int32_t num_outputs) {
  const std::array<int32_t, kMaxRows> ids{};
  step_.start({.ids = std::span(ids).first(num_rows),
               .positions = {},
               .tree_mask = {},
               .block_table = block_table,
               .context = context,
               .num_outputs = num_outputs});
  if (head_.device()) head_.device()->synchronize();
}

}  // namespace pilotfish
