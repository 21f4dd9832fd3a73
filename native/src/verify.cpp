#include "verify.h"

namespace pilotfish {

TreePass verification_rows(int32_t last_id, const TokenTree& tree) noexcept {
  TreePass pass;
  pass.add(last_id, 0, 1);
  for (int32_t i = 0; i < tree.size(); ++i) pass.add(tree[i].id, tree[i].depth, tree.mask(i));
  return pass;
}

Logits verify(Model& target, std::span<const int32_t> block_table, int32_t context, TreePass rows, bool gives_hidden) {
  return rows.forward(target, block_table, context, gives_hidden);
}

}  // namespace pilotfish
