#include "drafters/draft_rows.h"

namespace pilotfish {

TreePass level_pass(const TokenTree& tree, std::span<const int32_t> level) {
  TreePass pass;
  for (const int32_t index : level) {
    uint64_t mask = 1;
    for (int32_t i = index; i != TokenTree::kRoot; i = tree[i].parent) mask |= uint64_t{1} << tree[i].draft_row;
    pass.add(tree[index].id, tree[index].depth, mask);
  }
  return pass;
}

}  // namespace pilotfish
