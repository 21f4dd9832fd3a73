// The rows of several sequences as one pass: where each begins, what its rows see, and rows that fill the pass up.
#include "model/shared_pass.h"

#include <algorithm>
#include <array>
#include <vector>

#include "check.h"
#include "model/tree_pass.h"

namespace {

using namespace pilotfish;

constexpr std::array<int32_t, 2> kTable{4, 2};

Pass chain_of(std::span<const int32_t> ids, int32_t context) {
  return {.ids = ids,
          .positions = {},
          .tree_mask = {},
          .block_table = kTable,
          .context = context,
          .num_outputs = static_cast<int32_t>(ids.size())};
}

// 7 and below it 8 and 9.
TokenTree tree() {
  TokenTree tree;
  const int32_t parent = tree.add(7, TokenTree::kRoot);
  tree.add(8, parent);
  tree.add(9, parent);
  return tree;
}

template <typename Element>
bool are(std::span<const Element> found, std::initializer_list<Element> wanted) {
  return std::ranges::equal(found, wanted);
}

void test_chains_have_no_masks() {
  SharedPass pass(16, 16, 3);
  const std::array<int32_t, 3> ids{1, 2, 3};
  CHECK_EQ(pass.add(chain_of(ids, 10)), 0);
  CHECK_EQ(pass.add(chain_of(std::span(ids).first(1), 20)), 3);
  const Pass all = pass.pass();
  CHECK(are<int32_t>(all.ids, {1, 2, 3, 1}));
  CHECK(are<int32_t>(all.positions, {10, 11, 12, 20}));
  CHECK(all.tree_mask.empty());
  CHECK_EQ(all.num_outputs, 4);
  CHECK_EQ(pass.longest(), 3);
  CHECK_EQ(pass.num_sequences(), 2);
}

void test_a_chain_beside_a_tree_has_masks() {
  SharedPass pass(16, 16, 3);
  const std::array<int32_t, 3> ids{1, 2, 3};
  CHECK_EQ(pass.add(chain_of(ids, 10)), 0);
  TreePass rows = TreePass::of(6, tree());
  CHECK_EQ(pass.add(rows.at(kTable, 30)), 3);
  const Pass all = pass.pass();
  CHECK(are<int32_t>(all.positions, {10, 11, 12, 30, 31, 32, 32}));
  CHECK(are<uint64_t>(all.tree_mask, {0b1, 0b11, 0b111, 0b1, 0b11, 0b111, 0b1011}));
  CHECK_EQ(all.sequences[1].num_rows, 4);
  CHECK_EQ(all.sequences[1].context, 30);
}

// Rows of nobody are outputs too, each of which repeats the first row: a row that attention leaves out has no numbers.
void test_filling_up() {
  SharedPass pass(16, 16, 3);
  TreePass rows = TreePass::of(6, tree());
  pass.add(rows.at(kTable, 30));
  const std::array<int32_t, 1> ids{1};
  pass.add(chain_of(ids, 10));
  const SharedRows filled = pass.fill_up();
  CHECK_EQ(filled.num_rows, 8);
  CHECK_EQ(filled.sequence_rows, 8);
  const Pass all = pass.pass();
  CHECK(are<int32_t>(all.ids, {6, 7, 8, 9, 1, 0, 0, 0}));
  CHECK(are<int32_t>(all.positions, {30, 31, 32, 32, 10, 0, 0, 0}));
  CHECK(are<int32_t>(all.output_rows, {0, 1, 2, 3, 4, 0, 0, 0}));
  CHECK_EQ(all.tree_mask.size(), 8u);
  CHECK_EQ(all.num_outputs, 8);
  CHECK_EQ(all.sequences.size(), 2u);
  CHECK_EQ(all.sequences[0].num_rows + all.sequences[1].num_rows, 5);
  pass.clear();
  CHECK_EQ(pass.num_rows(), 0);
  CHECK_EQ(pass.longest(), 0);
}

void test_room() {
  SharedPass pass(4, 4, 2);
  const std::array<int32_t, 3> ids{1, 2, 3};
  CHECK(pass.has_room(4, 4));
  CHECK(!pass.has_room(5, 4));
  pass.add(chain_of(ids, 10));
  CHECK(!pass.has_room(2, 2));
  pass.add(chain_of(std::span(ids).first(1), 10));
  CHECK(!pass.has_room(0, 0));  // no further sequence
}

}  // namespace

int main() {
  test_chains_have_no_masks();
  test_a_chain_beside_a_tree_has_masks();
  test_filling_up();
  test_room();
  return check::result();
}
