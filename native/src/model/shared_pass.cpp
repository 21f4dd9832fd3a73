#include "model/shared_pass.h"

#include <algorithm>
#include <cassert>

namespace pilotfish {

SharedPass::SharedPass(int32_t max_rows, int32_t max_outputs, int32_t max_seqs)
    : max_rows_(max_rows), max_outputs_(max_outputs), max_seqs_(max_seqs) {
  ids_.reserve(max_rows);
  positions_.reserve(max_rows);
  masks_.reserve(max_rows);
  output_rows_.reserve(max_outputs);
  sequences_.reserve(max_seqs);
}

bool SharedPass::has_room(int32_t num_rows, int32_t num_outputs) const noexcept {
  return this->num_rows() + num_rows <= max_rows_ &&
         static_cast<int32_t>(output_rows_.size()) + num_outputs <= max_outputs_ &&
         static_cast<int32_t>(sequences_.size()) < max_seqs_;
}

int32_t SharedPass::longest() const noexcept {
  int32_t longest = 0;
  for (const PassSequence& sequence : sequences_) longest = std::max(longest, sequence.num_rows);
  return longest;
}

int32_t SharedPass::add(const Pass& rows) {
  const auto count = static_cast<int32_t>(rows.ids.size());
  assert(has_room(count, rows.num_outputs) && rows.sequences.empty());
  const auto first_output = static_cast<int32_t>(output_rows_.size());
  ids_.insert(ids_.end(), rows.ids.begin(), rows.ids.end());
  for (int32_t row = 0; row < count; ++row) {
    positions_.push_back(rows.positions.empty() ? rows.context + row : rows.positions[row]);
    // A causal row sees itself and those before it.
    masks_.push_back(rows.tree_mask.empty() ? ~uint64_t{0} >> (63 - row) : rows.tree_mask[row]);
  }
  for (int32_t row = num_rows() - rows.num_outputs; row < num_rows(); ++row) output_rows_.push_back(row);
  sequences_.push_back({count, rows.block_table, rows.context});
  is_causal_ = is_causal_ && rows.tree_mask.empty();
  return first_output;
}

Pass SharedPass::pass() const noexcept {
  return {.ids = ids_,
          .positions = positions_,
          .tree_mask = is_causal_ ? std::span<const uint64_t>() : masks_,
          .block_table = {},
          .context = 0,
          .num_outputs = static_cast<int32_t>(output_rows_.size()),
          .sequences = sequences_,
          .output_rows = output_rows_};
}

Logits SharedPass::forward(Model& model, bool gives_hidden) {
  Pass rows = pass();
  rows.num_hidden = gives_hidden ? num_rows() : 0;
  return model.forward(rows);
}

void SharedPass::start(Model& model, int32_t num_rows) {
  assert(is_causal_ && num_rows >= this->num_rows() && num_rows <= max_rows_);
  ids_.resize(num_rows);
  positions_.resize(num_rows);
  model.start(pass());
}

// Their own outputs would not be numbers: attention writes nothing for them.
SharedRows SharedPass::fill_up() {
  const SharedRows rows = SharedRows::of(num_sequences(), num_rows(), longest());
  assert(num_sequences() > 1 && rows.num_rows <= std::min(max_rows_, max_outputs_));
  constexpr uint64_t kRoot = 1;
  if (output_rows_.size() == ids_.size()) output_rows_.resize(rows.num_rows, 0);
  ids_.resize(rows.num_rows);
  positions_.resize(rows.num_rows);
  masks_.resize(rows.num_rows, kRoot);
  return rows;
}

void SharedPass::clear() noexcept {
  ids_.clear();
  positions_.clear();
  masks_.clear();
  output_rows_.clear();
  sequences_.clear();
  is_causal_ = true;
}

}  // namespace pilotfish
