#include "draft/lookup_drafter.h"

#include <chrono>
#include <random>
#include <vector>

#include "check.h"

namespace {

using pilotfish::LookupDrafter;
using pilotfish::LookupIndex;
using pilotfish::Source;
using pilotfish::TokenTree;

constexpr pilotfish::TreeLimits kRoomy{16, 16};

std::vector<int32_t> first_path(const TokenTree& tree) {
  std::vector<int32_t> ids;
  for (int32_t i = tree.next_child(TokenTree::kRoot, TokenTree::kRoot); i != TokenTree::kNone;
       i = tree.next_child(i, i)) {
    ids.push_back(tree[i].id);
  }
  return ids;
}

// Every beginning of the tokens is a tree, and its paths are the likeliest.
void check_order(const TokenTree& tree) {
  for (int32_t i = 0; i < tree.size(); ++i) {
    CHECK(tree[i].parent < i);
    CHECK(tree[i].source == Source::kLookup);
    CHECK(tree[i].prob > 0 && tree[i].prob <= 1);
    if (i > 0) CHECK(tree[i].path_prob <= tree[i - 1].path_prob);
  }
}

void test_what_followed_is_drafted() {
  const std::vector<int32_t> text{1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4};
  LookupDrafter drafter(64, nullptr);
  const TokenTree& tree = drafter.search(text, kRoomy);
  check_order(tree);
  const std::vector<int32_t> expected{5, 6, 7, 8, 9, 2, 3, 4};  // to the end of the text, and no further
  CHECK(first_path(tree) == expected);
  CHECK_EQ(tree.size(), 8);
}

void test_two_continuations_share_their_beginning() {
  // After 1 2 came 3 4 and 3 5: the later occurrence is the first guess.
  const std::vector<int32_t> text{1, 2, 3, 4, 8, 1, 2, 3, 5, 9, 1, 2};
  LookupDrafter drafter(64, nullptr);
  const TokenTree& tree = drafter.search(text, kRoomy);
  check_order(tree);
  const int32_t three = tree.find_child(TokenTree::kRoot, 3);
  CHECK_EQ(three, 0);
  CHECK(tree.next_child(TokenTree::kRoot, three) == TokenTree::kNone);
  const int32_t five = tree.find_child(three, 5);
  const int32_t four = tree.find_child(three, 4);
  CHECK(five > 0 && four > five);
  CHECK(tree[three].prob > tree[five].prob);  // both occurrences agree on it
}

void test_misses() {
  LookupDrafter drafter(64, nullptr);
  CHECK_EQ(drafter.search(std::vector<int32_t>{1}, kRoomy).size(), 0);
  const std::vector<int32_t> fresh{1, 2, 3, 4};
  CHECK_EQ(drafter.search(fresh, kRoomy).size(), 0);
  drafter.record(fresh);  // nothing to learn from
  const std::vector<int32_t> repeated{1, 2, 3, 4, 1};
  CHECK_EQ(drafter.search(repeated, {0, 0}).size(), 0);
  CHECK_EQ(drafter.search(repeated, {16, 2}).size(), 2);
  CHECK_EQ(drafter.search(repeated, kRoomy).size(), 4);
}

void test_learns_from_what_came() {
  // The text goes on differently each time although all matches are long.
  LookupDrafter drafter(1024, nullptr);
  std::vector<int32_t> text{1, 2, 3, 4, 5};
  float first = 0;
  float last = 0;
  for (int32_t i = 0; i < 40; ++i) {
    text.insert(text.end(), {100 + i, 1, 2, 3, 4});
    const TokenTree& tree = drafter.search(text, kRoomy);
    CHECK(tree.size() > 0);
    last = tree[0].prob;
    if (i == 0) first = tree[0].prob;
    const std::vector<int32_t> next{1000 + i};
    drafter.record(next);
  }
  CHECK(first > 0.4f);
  CHECK(last < 0.15f);
}

// What failed after matches of one length makes those of another less likely
// too: it is the text that does not repeat.
void test_learns_how_much_a_text_repeats() {
  using Agreement = pilotfish::LookupRates::Agreement;
  const auto longer = pilotfish::LookupRates::key(16, Agreement::kOnce, 0);
  const auto shorter = pilotfish::LookupRates::key(2, Agreement::kOnce, 0);
  pilotfish::LookupRates rates;
  const float at_first = rates.rate(longer);
  for (int32_t i = 0; i < 12; ++i) rates.record(shorter, false);
  const float doubted = rates.rate(longer);
  CHECK(doubted < 0.97f * at_first);
  CHECK(rates.rate(shorter) < 0.3f);
  for (int32_t i = 0; i < 40; ++i) rates.record(longer, true);
  CHECK(rates.rate(longer) > doubted);
}

void test_the_store_knows_longer_beginnings() {
  LookupIndex store(32);
  store.append(std::vector<int32_t>{7, 8, 9, 10, 11, 12, LookupIndex::kNone, 7, 8});
  LookupDrafter drafter(64, &store);
  const std::vector<int32_t> text{9, 3, 7, 8, 9};
  const std::vector<int32_t> expected{10, 11, 12};  // the text ends there
  CHECK(first_path(drafter.search(text, kRoomy)) == expected);
  LookupDrafter alone(64, nullptr);
  const std::vector<int32_t> own{3, 7, 8, 9};
  CHECK(first_path(alone.search(text, kRoomy)) == own);
}

void test_proposes_a_beginning_beside_what_is_there() {
  const std::vector<int32_t> text{1, 2, 3, 4, 5, 1, 2};
  LookupDrafter drafter(64, nullptr);
  drafter.search(text, kRoomy);
  TokenTree tree;
  tree.clear(kRoomy);
  tree.add(3, TokenTree::kRoot, 0.9f, Source::kDraft);
  tree.add(9, TokenTree::kRoot, 0.05f, Source::kDraft);
  drafter.propose(2, tree);
  CHECK_EQ(tree.size(), 3);
  CHECK_EQ(tree[2].id, 4);
  CHECK_EQ(tree[2].parent, 0);
  CHECK(tree[2].source == Source::kLookup && tree[0].source == Source::kDraft);
}

void test_a_miss_is_cheap() {
  constexpr int32_t kNumTokens = 4096;
  std::mt19937 random(5);
  std::vector<int32_t> text(kNumTokens);
  for (int32_t& id : text) id = static_cast<int32_t>(random() % 49152);
  LookupDrafter drafter(kNumTokens, nullptr);
  const size_t first = kNumTokens / 2;
  drafter.search({text.data(), first}, kRoomy);
  const auto start = std::chrono::steady_clock::now();
  for (size_t size = first + 1; size <= text.size(); ++size) {
    drafter.search({text.data(), size}, kRoomy);
    drafter.record({text.data() + size - 1, 1});
  }
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  const double us = time.count() / static_cast<double>(text.size() - first);
  std::printf("a round that finds next to nothing: %.2f us\n", us);
  CHECK(us < 200);  // 20 is the aim; a sanitizer's build or a busy machine may
                    // take longer
}

}  // namespace

int main() {
  test_what_followed_is_drafted();
  test_two_continuations_share_their_beginning();
  test_misses();
  test_learns_from_what_came();
  test_learns_how_much_a_text_repeats();
  test_the_store_knows_longer_beginnings();
  test_proposes_a_beginning_beside_what_is_there();
  test_a_miss_is_cheap();
  return check::result();
}
