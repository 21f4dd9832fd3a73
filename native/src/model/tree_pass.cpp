#include "model/tree_pass.h"

#include <bit>
#include <cassert>

namespace pilotfish {

TreePass TreePass::of(int32_t last_id, const TokenTree& tree) noexcept {
  TreePass pass;
  pass.add(last_id, 0, 1);
  for (int32_t i = 0; i < tree.size(); ++i) pass.add(tree[i].id, tree[i].depth, tree.mask(i));
  return pass;
}

void TreePass::add(int32_t id, int32_t depth, uint64_t mask) noexcept {
  assert(num_rows_ < kMaxRows && mask != 0 && (num_rows_ == 0 || mask > masks_[num_rows_ - 1]));
  ids_[num_rows_] = id;
  positions_[num_rows_] = depth;
  masks_[num_rows_] = mask;
  ++num_rows_;
}

void TreePass::pad(int32_t num_rows) noexcept {
  const bool is_chain = is_causal();
  while (num_rows_ < num_rows) {
    const uint64_t own = uint64_t{1} << num_rows_;
    add(ids_[0], is_chain ? num_rows_ : 0, is_chain ? own | (own - 1) : own);
  }
}

bool TreePass::is_causal() const noexcept {
  const int first = std::countr_one(masks_[0]);
  for (int row = 0; row < num_rows_; ++row) {
    const int num_seen = std::popcount(masks_[row]);
    if (num_seen != first + row || num_seen != std::countr_one(masks_[row])) return false;
  }
  return true;
}

Pass TreePass::at(std::span<const int32_t> block_table, int32_t context) {
  const auto num_rows = size_t(num_rows_);
  Pass pass{.ids = {ids_.data(), num_rows},
            .positions = {},
            .tree_mask = {},
            .block_table = block_table,
            .context = context,
            .num_outputs = num_rows_};
  if (is_causal()) {
    pass.context += std::popcount(masks_[0]) - 1;
  } else {
    for (int32_t row = 0; row < num_rows_; ++row) positions_[row] += context;
    pass.positions = {positions_.data(), num_rows};
    pass.tree_mask = {masks_.data(), num_rows};
  }
  return pass;
}

}  // namespace pilotfish
