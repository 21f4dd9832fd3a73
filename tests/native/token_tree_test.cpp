#include "token_tree.h"

#include "check.h"

namespace {

using pilotfish::TokenTree;

void test_chain() {
  TokenTree tree;
  CHECK(tree.is_chain());
  for (int32_t i = 0; i < TokenTree::kMaxTokens; ++i) CHECK_EQ(tree.add(100 + i, i == 0 ? TokenTree::kRoot : i - 1), i);
  CHECK(tree.is_chain());
  CHECK_EQ(tree.size(), TokenTree::kMaxTokens);
  CHECK_EQ(tree.ids()[62], 162);
  CHECK_EQ(tree.depth(62), 63);
  CHECK_EQ(tree.mask(0), uint64_t{3});
  CHECK_EQ(tree.mask(62), ~uint64_t{0});
}

//   root - 0 - 1
//        |   - 2 - 4
//        - 3
void test_branches() {
  TokenTree tree;
  tree.add(10, TokenTree::kRoot);
  tree.add(11, 0);
  tree.add(12, 0);
  CHECK(!tree.is_chain());
  tree.add(13, TokenTree::kRoot);
  tree.add(14, 2);
  CHECK_EQ(tree.depth(1), 2);
  CHECK_EQ(tree.depth(3), 1);
  CHECK_EQ(tree.depth(4), 3);
  CHECK_EQ(tree.mask(2), uint64_t{0b01011});
  CHECK_EQ(tree.mask(3), uint64_t{0b10001});
  CHECK_EQ(tree.mask(4), uint64_t{0b101011});
  tree.clear();
  tree.add(1, TokenTree::kRoot);
  CHECK(tree.is_chain());
}

}  // namespace

int main() {
  test_chain();
  test_branches();
  return check::result();
}
