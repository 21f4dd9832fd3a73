#include "verify.h"

#include <algorithm>
#include <array>

namespace pilotfish {

Logits verify(Model& target, std::span<const int32_t> block_table, int32_t context, int32_t last_id,
              const TokenTree& tree) {
  constexpr size_t kMaxRows = TokenTree::kMaxTokens + 1;
  const int32_t num_rows = tree.size() + 1;
  std::array<int32_t, kMaxRows> ids;
  ids[0] = last_id;
  std::copy(tree.ids().begin(), tree.ids().end(), ids.begin() + 1);
  Pass pass{.ids = {ids.data(), size_t(num_rows)},
            .positions = {},
            .tree_mask = {},
            .block_table = block_table,
            .context = context,
            .num_outputs = num_rows};
  if (tree.is_chain()) return target.forward(pass);

  std::array<int32_t, kMaxRows> positions;
  std::array<uint64_t, kMaxRows> masks;
  positions[0] = context;
  masks[0] = 1;
  for (int32_t i = 0; i < tree.size(); ++i) {
    positions[i + 1] = context + tree.depth(i);
    masks[i + 1] = tree.mask(i);
  }
  pass.positions = {positions.data(), size_t(num_rows)};
  pass.tree_mask = {masks.data(), size_t(num_rows)};
  return target.forward(pass);
}

}  // namespace pilotfish
