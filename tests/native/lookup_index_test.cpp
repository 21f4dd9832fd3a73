// The index against a search that compares every position.
#include "lookup/lookup_index.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "check.h"

namespace {

using pilotfish::LookupIndex;
using Match = LookupIndex::Match;

bool equal(const Match& a, const Match& b) { return a.next == b.next && a.length == b.length; }

// All matches of at least one token: the longest first, of equally long ones the latest.
std::vector<Match> slow_matches(const std::vector<int32_t>& text, const std::vector<int32_t>& context) {
  std::vector<Match> matches;
  for (int32_t next = static_cast<int32_t>(text.size()) - 1; next > 0; --next) {
    int32_t length = 0;
    const int32_t most = std::min({next, static_cast<int32_t>(context.size()), LookupIndex::kLongestMatch});
    while (length < most && text[next - 1 - length] == context[context.size() - 1 - length]) ++length;
    if (length > 0) matches.push_back({next, length});
  }
  std::stable_sort(matches.begin(), matches.end(), [](const Match& a, const Match& b) { return a.length > b.length; });
  return matches;
}

std::vector<int32_t> random_text(std::mt19937& random, size_t length, int32_t num_ids) {
  std::vector<int32_t> text;
  std::uniform_int_distribution<int32_t> id(0, num_ids - 1);
  while (text.size() < length) {
    // Half of it is copied from before, as in the texts that lookups are for.
    if (text.size() > 4 && random() % 2 == 0) {
      const size_t from = random() % text.size();
      const size_t count = std::min(1 + random() % 24, text.size() - from);
      const std::vector<int32_t> copy(text.begin() + from, text.begin() + from + count);
      text.insert(text.end(), copy.begin(), copy.end());
    } else {
      text.push_back(id(random));
    }
  }
  text.resize(length);
  return text;
}

// What a search finds is a beginning of what the slow one finds, down to the shortest n-gram of its chain; the visits
// suffice for texts this short.
void check_search(const LookupIndex& index, const std::vector<int32_t>& text, const std::vector<int32_t>& context) {
  std::vector<Match> room(4);
  const auto found = index.find(context, room);
  const std::vector<Match> expected = slow_matches(text, context);
  CHECK_EQ(found.empty(), expected.empty());
  CHECK(found.size() <= expected.size());
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) CHECK(equal(found[i], expected[i]));
}

void test_random_texts() {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::vector<int32_t> text = random_text(random, 1 + random() % 120, 1 + random() % 12);
    LookupIndex index(static_cast<int32_t>(text.size()));
    for (size_t size = 1; size <= text.size(); ++size) {
      index.append(text[size - 1]);
      const std::vector<int32_t> sequence(text.begin(), text.begin() + size);
      check_search(index, sequence, sequence);
    }
    const std::vector<int32_t> other = random_text(random, 1 + random() % 30, 12);
    check_search(index, text, other);
  }
}

void test_the_longest_match_wins_over_a_later_one() {
  LookupIndex index(16);
  const std::vector<int32_t> text{1, 2, 3, 7, 9, 3, 8, 1, 2, 3};
  index.append(text);
  std::vector<Match> room(2);
  const auto found = index.find(text, room);
  CHECK_EQ(found.size(), 1u);  // the chain of three tokens has it, so that single tokens are not looked at
  CHECK(equal(found[0], {3, 3}));
  const std::vector<int32_t> short_context{4, 3};
  const auto both = index.find(short_context, room);
  CHECK_EQ(both.size(), 2u);
  CHECK(equal(both[0], {6, 1}));
  CHECK(equal(both[1], {3, 1}));
}

void test_texts_are_kept_apart() {
  LookupIndex index(8);
  index.append(std::vector<int32_t>{5, 6, LookupIndex::kNone, 6, 7});
  std::vector<Match> room(4);
  const std::vector<int32_t> context{LookupIndex::kNone, 6};
  const auto found = index.find(context, room);
  CHECK_EQ(found.size(), 2u);
  for (const Match& match : found) CHECK_EQ(match.length, 1);
  const std::vector<int32_t> border{6, LookupIndex::kNone};
  CHECK(index.find(border, room).empty());
}

void test_cleared_and_empty() {
  LookupIndex index(4);
  std::vector<Match> room(4);
  const std::vector<int32_t> context{1, 1};
  CHECK(index.find(context, room).empty());
  index.append(context);
  CHECK_EQ(index.find(context, room).size(), 1u);
  CHECK(index.find(context, {}).empty());
  CHECK(index.find({}, room).empty());
  index.clear();
  CHECK_EQ(index.size(), 0);
  CHECK(index.find(context, room).empty());
}

// One token over and over has the longest chains there are: a search still looks at a bounded number.
void test_time_is_bounded() {
  constexpr int32_t kNumTokens = 1 << 17;
  LookupIndex index(kNumTokens);
  std::vector<Match> room(8);
  const std::vector<int32_t> context(64, 1);
  const auto start = std::chrono::steady_clock::now();
  for (int32_t i = 0; i < kNumTokens; ++i) index.append(1);
  const auto filled = std::chrono::steady_clock::now();
  constexpr int kSearches = 1000;
  size_t num_found = 0;
  for (int i = 0; i < kSearches; ++i) num_found += index.find(context, room).size();
  const auto end = std::chrono::steady_clock::now();
  CHECK_EQ(num_found, kSearches * room.size());
  const double append_us = std::chrono::duration<double, std::micro>(filled - start).count() / kNumTokens;
  const double search_us = std::chrono::duration<double, std::micro>(end - filled).count() / kSearches;
  std::printf("append %.3f us, search over the longest chain %.2f us\n", append_us, search_us);
  CHECK(append_us < 20);
  CHECK(search_us < 1000);  // generous: the machine may be busy, and a sanitizer's build is slow
}

}  // namespace

int main() {
  test_random_texts();
  test_the_longest_match_wins_over_a_later_one();
  test_texts_are_kept_apart();
  test_cleared_and_empty();
  test_time_is_bounded();
  return check::result();
}
