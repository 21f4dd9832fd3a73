#include "verify.h"

namespace pilotfish {

TreePass verification_rows(int32_t last_id, const TokenTree& tree) noexcept {
  TreePass pass;
  pass.add(last_id, 0, 1);
  for (int32_t i = 0; i < tree.size(); ++i) pass.add(tree[i].id, tree[i].depth, tree.mask(i));
  return pass;
}

}  // namespace pilotfish
