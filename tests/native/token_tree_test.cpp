#include "base/token_tree.h"

#include <algorithm>
#include <vector>

#include "check.h"

namespace {

using pilotfish::Draw;
using pilotfish::Source;
using pilotfish::TokenTree;
using pilotfish::TreeToken;

std::vector<int32_t> ids_of(const TokenTree& tree) {
  std::vector<int32_t> ids;
  for (const TreeToken& token : tree.tokens()) ids.push_back(token.id);
  return ids;
}

void check_ids(const TokenTree& tree, const std::vector<int32_t>& expected) { CHECK(ids_of(tree) == expected); }

void test_chain() {
  TokenTree tree;
  for (int32_t i = 0; i < TokenTree::kMaxTokens; ++i) CHECK_EQ(tree.add(100 + i, i - 1), i);
  CHECK(tree.is_full());
  CHECK_EQ(tree[62].id, 162);
  CHECK_EQ(tree[62].depth, 63);
  CHECK_EQ(tree.mask(0), uint64_t{3});
  CHECK_EQ(tree.mask(62), ~uint64_t{0});
}

//   root - 0 - 1
//        |   - 2 - 4
//        - 3
void test_branches() {
  TokenTree tree;
  tree.add(10, TokenTree::kRoot);
  tree.add(11, 0, 0.5f);
  tree.add(12, 0, 0.25f, Source::kLookup);
  tree.add(13, TokenTree::kRoot);
  tree.add(14, 2, 0.5f);
  CHECK_EQ(tree[1].depth, 2);
  CHECK_EQ(tree[3].depth, 1);
  CHECK_EQ(tree[4].depth, 3);
  CHECK_EQ(tree[4].path_prob, 0.125f);
  CHECK(tree[2].source == Source::kLookup);
  CHECK_EQ(tree.mask(2), uint64_t{0b01011});
  CHECK_EQ(tree.mask(3), uint64_t{0b10001});
  CHECK_EQ(tree.mask(4), uint64_t{0b101011});
  CHECK_EQ(tree.next_child(TokenTree::kRoot, TokenTree::kRoot), 0);
  CHECK_EQ(tree.next_child(TokenTree::kRoot, 0), 3);
  CHECK_EQ(tree.next_child(TokenTree::kRoot, 3), TokenTree::kNone);
  CHECK_EQ(tree.next_child(0, 0), 1);
  CHECK_EQ(tree.next_child(0, 1), 2);
  CHECK_EQ(tree.find_child(0, 12), 2);
  CHECK_EQ(tree.find_child(0, 13), TokenTree::kNone);
  CHECK_EQ(tree.find_child(TokenTree::kNone, 10), TokenTree::kNone);
  std::array<int32_t, TokenTree::kMaxTokens> ids;
  const auto path = tree.path(4, ids);
  CHECK((std::vector<int32_t>(path.begin(), path.end()) == std::vector<int32_t>{10, 12, 14}));
  CHECK(tree.path(TokenTree::kRoot, ids).empty());
}

void test_what_is_refused() {
  TokenTree tree;
  tree.clear({.max_tokens = 3, .max_depth = 2});
  CHECK_EQ(tree.add(1, TokenTree::kRoot, 0.0f), TokenTree::kNone);  // the draft calls it impossible
  CHECK_EQ(tree.add(1, TokenTree::kRoot, -1.0f), TokenTree::kNone);
  CHECK_EQ(tree.add(1, TokenTree::kRoot, std::nanf("")), TokenTree::kNone);
  CHECK_EQ(tree.size(), 0);
  CHECK_EQ(tree.add(1, TokenTree::kRoot), 0);
  CHECK_EQ(tree.add(2, 0), 1);
  CHECK_EQ(tree.add(3, 1), TokenTree::kNone);                 // too deep
  CHECK_EQ(tree.add(4, TokenTree::kNone), TokenTree::kNone);  // below a refused one
  CHECK_EQ(tree.add(2, 0, 0.5f), 1);                          // a duplicate is the sibling that is there
  CHECK_EQ(tree[1].prob, 1.0f);
  CHECK_EQ(tree.add(5, TokenTree::kRoot, 1.5f), 2);
  CHECK_EQ(tree[2].prob, 1.0f);
  CHECK_EQ(tree.add(6, TokenTree::kRoot), TokenTree::kNone);  // too wide
  CHECK_EQ(tree.add(5, TokenTree::kRoot), 2);                 // but what is there is found
  check_ids(tree, {1, 2, 5});
  tree.clear({.max_tokens = 0, .max_depth = 5});
  CHECK_EQ(tree.add(1, TokenTree::kRoot), TokenTree::kNone);  // a budget of no rows
  tree.clear({.max_tokens = 1000, .max_depth = -5});
  CHECK_EQ(tree.limits().max_tokens, TokenTree::kMaxTokens);
  CHECK_EQ(tree.limits().max_depth, 0);
}

void test_merge_of_equal_prefixes() {
  TokenTree first;
  first.add(1, TokenTree::kRoot);
  first.add(2, 0);
  TokenTree second;
  second.add(3, TokenTree::kRoot, 0.5f, Source::kLookup);
  second.add(1, TokenTree::kRoot, 0.5f);
  second.add(2, 1);
  second.add(4, 1);
  second.add(5, 2);
  second.set_draw(4, {.distribution = 7, .mass = 0.5f});
  second.set_draft_row(4, 9);
  first.merge(second);
  check_ids(first, {1, 2, 3, 4, 5});
  CHECK_EQ(first[3].parent, 0);
  CHECK_EQ(first[4].parent, 1);
  CHECK_EQ(first[4].depth, 3);
  CHECK_EQ(first[4].draw.distribution, Draw::kCertain);
  CHECK_EQ(first[4].draft_row, 0);
  CHECK(first[2].source == Source::kLookup);
  TokenTree narrow;
  narrow.clear({.max_tokens = 2, .max_depth = 9});
  narrow.merge(second);
  check_ids(narrow, {3, 1});
}

void test_prune_keeps_the_likeliest_paths() {
  TokenTree tree;
  tree.add(1, TokenTree::kRoot, 0.5f);
  tree.add(2, TokenTree::kRoot, 0.3f);
  tree.add(3, 0, 0.5f);  // 0.25
  tree.add(4, 1, 0.9f);  // 0.27
  tree.add(5, 2, 1.0f);  // 0.25, after its parent
  tree.set_draft_row(3, 6);
  tree.set_draw(0, {.distribution = 0, .mass = 1});
  TokenTree pruned = tree;
  pruned.prune(5);
  CHECK_EQ(pruned[0].draw.distribution, 0);
  pruned.prune(4);
  check_ids(pruned, {1, 2, 3, 4});
  CHECK_EQ(pruned[0].draw.distribution, Draw::kCertain);
  pruned.prune(3);
  check_ids(pruned, {1, 2, 4});
  CHECK_EQ(pruned[2].parent, 1);
  CHECK_EQ(pruned[2].draft_row, 6);
  CHECK_EQ(pruned.mask(2), uint64_t{0b1101});
  pruned.prune(0);
  CHECK_EQ(pruned.size(), 0);
}

// Another drafter agrees with a token: it is likelier, and so is what hangs below it.
void test_raised_probabilities() {
  TokenTree tree;
  tree.add(10, TokenTree::kRoot, 0.5f, Source::kLookup);
  tree.add(11, 0, 0.5f, Source::kLookup);
  tree.add(12, TokenTree::kRoot, 0.25f);
  tree.raise_prob(0, 0.25f);
  CHECK_EQ(tree[0].prob, 0.5f);
  tree.raise_prob(0, 0.75f);
  CHECK_EQ(tree[0].path_prob, 0.75f);
  CHECK_EQ(tree[1].path_prob, 0.375f);
  CHECK_EQ(tree[2].path_prob, 0.25f);
  tree.set_guess(2, {1, 0.3f});
  tree.prune(2);
  CHECK(tree.size() == 2 && tree[1].path_prob == 0.375f);
  tree.add(13, 0, 0.125f);
  tree.set_guess(2, {1, 0.125f});
  tree.prune(3);
  CHECK(tree[2].guess.rank == 1 && tree[2].guess.confidence == 0.125f);
}

}  // namespace

int main() {
  test_raised_probabilities();
  test_chain();
  test_branches();
  test_what_is_refused();
  test_merge_of_equal_prefixes();
  test_prune_keeps_the_likeliest_paths();
  return check::result();
}
