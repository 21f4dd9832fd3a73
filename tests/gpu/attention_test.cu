// Paged attention over every type of cache against a double oracle; passes of any number of rows, rows of a tree, and
// rows of several sequences, with the bits of rows that are decoded one at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "attention_sequence.h"

namespace pilotfish::cuda::test {
namespace {

/// Relative norm. Queries and weights are f16; a key on a rounding border may be the next one.
constexpr double kTolerance = 2e-3;

double relative_error(const float* found, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

void expect_bits(const Case& c, const char* what, int row, const float* found, const float* expected, size_t count) {
  if (std::memcmp(found, expected, count * sizeof(float)) == 0) return;
  size_t first = 0;
  while (found[first] == expected[first]) ++first;
  std::printf(
      "FAILED %s: %s, row %d: bits differ from column %zu on: %.9g, "
      "alone %.9g\n",
      c.name, what, row, first, found[first], expected[first]);
  ++failures;
}

/// One token at a time, then the same sequence in passes of many sizes.
void check_chain(const Case& c) {
  Sequence sequence(c, 31);
  const size_t width = sequence.row_floats();
  std::vector<std::vector<float>> single;
  for (int token = 0; token < c.num_tokens; ++token) single.push_back(sequence.chain(token, 1));
  double worst = 0;
  std::vector<int> path;
  for (int token = 0; token < c.num_tokens; ++token) {
    path.push_back(token);
    if (token % 97 != 5 && token + 1 != c.num_tokens && token != 0) continue;
    const double error = relative_error(single[token].data(), sequence.oracle(path));
    if (!(error <= worst)) worst = error;
  }
  for (const int rows : {2, 3, 8, 16, 17, 64, 65, 200}) {
    for (int begin = 0; begin < c.num_tokens; begin += rows) {
      const int count = std::min(rows, c.num_tokens - begin);
      const std::vector<float> together = sequence.chain(begin, count);
      for (int row = 0; row < count && failures < 20; ++row) {
        expect_bits(c, rows <= kMaxSplitRows ? "split" : "prefill", begin + row, &together[row * width],
                    single[begin + row].data(), width);
      }
    }
  }
  const bool ok = worst <= kTolerance;
  failures += !ok;
  std::printf("%-24s %-4s, %4d tokens: relative error %.2e%s\n", c.name, name_of(c.cache), c.num_tokens, worst,
              ok ? "" : "  FAILED");
  std::fflush(stdout);
}

/// A tree behind a context, at once and a level at a time, against its paths decoded as chains.
void check_tree(const Case& c, int context, int num_more) {
  std::vector<int> parents = {-1, 0, 0, 1, 1, 2, 3, 6};  // row 0 is the last token
  for (int row = 0; row < num_more; ++row) parents.push_back(row % 5 + row / 2);
  Sequence sequence(c, 77);
  for (int token = 0; token < context; ++token) sequence.chain(token, 1);
  const int num_rows = static_cast<int>(parents.size());
  std::vector<int> ids;
  std::vector<int32_t> positions;
  std::vector<uint64_t> masks;
  std::vector<std::vector<int>> paths;
  for (int row = 0; row < num_rows; ++row) {
    const int parent = parents[row];
    ids.push_back(context + row);
    positions.push_back(parent < 0 ? context : positions[parent] + 1);
    masks.push_back((parent < 0 ? 0 : masks[parent]) | uint64_t{1} << row);
    paths.push_back(parent < 0 ? std::vector<int>{} : paths[parent]);
    paths.back().push_back(context + row);
  }
  const size_t width = sequence.row_floats();
  const std::vector<float> at_once = sequence.pass(context, ids, positions, masks);
  for (const auto& [first, last] : {std::pair{1, 3}, std::pair{3, 6}}) {  // levels after the first rows are cached
    const std::vector<float> level = sequence.pass(context, {ids.begin() + first, ids.begin() + last},
                                                   {positions.begin() + first, positions.begin() + last},
                                                   {masks.begin() + first, masks.begin() + last});
    expect_bits(c, "level of a tree", first, level.data(), &at_once[first * width], level.size());
  }
  for (int row = 0; row < num_rows; ++row) {
    std::vector<float> alone;
    for (size_t i = 0; i < paths[row].size(); ++i) {
      const int position = context + static_cast<int>(i);
      alone = sequence.pass(position, {paths[row][i]}, {position}, {});
    }
    expect_bits(c, "tree", row, &at_once[row * width], alone.data(), width);
  }
  std::printf("%-24s tree of %d rows after %d tokens\n", c.name, num_rows, context);
}

/// Sequences of different tokens and lengths in one pass, beside the same ones a row or a tree at a time.
class Together {
 public:
  explicit Together(const Case& c) : case_(c), cache_(c, 51, 2 * kMost) {
    for (const int context : {0, 3, 40, 127, 128, c.num_tokens - 40}) contexts_.push_back(context);
    for (int s = 0; s < count(); ++s) {
      for (const int side : {kShared, kAlone}) {
        for (int begin = 0; begin < contexts_[s]; begin += 50) {
          cache_.pass({part(s, side, begin, std::min(50, contexts_[s] - begin))});
        }
      }
    }
  }

  /// num_rows[s] more tokens of each sequence.
  void check_chains(const std::vector<int>& num_rows, const char* what) {
    std::vector<Part> parts;
    for (int s = 0; s < count(); ++s) parts.push_back(part(s, kShared, contexts_[s], num_rows[s]));
    const std::vector<float> together = cache_.pass(parts);
    const std::vector<float> told = cache_.pass(parts, {.longest = true, .num_padding = 5});
    expect_bits(case_, "sequences whose rows are known", 0, told.data(), together.data(), together.size());
    size_t first = 0;
    for (int s = 0; s < count(); ++s) {
      for (int row = 0; row < num_rows[s]; ++row, first += cache_.row_floats()) {
        const std::vector<float> expected = cache_.pass({part(s, kAlone, contexts_[s] + row, 1)});
        expect_bits(case_, what, s, &together[first], expected.data(), expected.size());
        const double error =
            relative_error(&together[first], cache_.oracle(part(s, kShared, 0, contexts_[s] + row + 1).ids));
        if (error <= kTolerance) continue;
        std::printf("FAILED %s: %s, sequence %d: relative error %.2e\n", case_.name, what, s, error);
        ++failures;
      }
      contexts_[s] += num_rows[s];
    }
  }

  /// A tree of each, none of which is committed.
  void check_trees() {
    const std::vector<uint64_t> masks = {1, 3, 5, 11, 19, 37};
    const std::vector<int32_t> depths = {0, 1, 1, 2, 2, 2};
    std::vector<Part> parts, expected;
    for (int s = 0; s < count(); ++s) {
      const int num_rows = s % 2 == 0 ? 6 : 3;
      for (const int side : {kShared, kAlone}) {
        Part tree = part(s, side, contexts_[s], num_rows);
        tree.masks = {masks.begin(), masks.begin() + num_rows};
        for (int row = 0; row < num_rows; ++row) tree.positions[row] = contexts_[s] + depths[row];
        (side == kShared ? parts : expected).push_back(tree);
      }
    }
    const std::vector<float> together = cache_.pass(parts);
    const std::vector<float> told = cache_.pass(parts, {.longest = true, .num_padding = 5});
    expect_bits(case_, "trees whose rows are known", 0, told.data(), together.data(), together.size());
    size_t first = 0;
    for (int s = 0; s < count(); ++s) {
      const std::vector<float> alone = cache_.pass({expected[s]});
      expect_bits(case_, "trees together", s, &together[first], alone.data(), alone.size());
      first += alone.size();
    }
  }

 private:
  static constexpr int kMost = 6, kShared = 0, kAlone = 1;

  int count() const { return static_cast<int>(contexts_.size()); }
  Part part(int s, int side, int context, int num_rows) const {
    Part rows{.table = 2 * s + side, .context = context, .ids = {}, .positions = {}, .masks = {}};
    for (int i = 0; i < num_rows; ++i) {
      rows.ids.push_back((17 * s + context + i) % case_.num_tokens);
      rows.positions.push_back(context + i);
    }
    return rows;
  }

  Case case_;
  Sequence cache_;
  std::vector<int> contexts_;
};

void check_together(const Case& c) {
  Together sequences(c);
  sequences.check_chains({1, 1, 1, 1, 1, 1}, "rows of several sequences");
  sequences.check_chains({4, 1, 2, 8, 3, 5}, "chains of several sequences");
  sequences.check_chains({2, 12, 1, 1, 20, 3}, "longer chains of several sequences");
  sequences.check_trees();
  std::printf("%-24s 6 sequences together\n", c.name);
}

AttentionShape shape(int heads, int kv_heads, int head_dim) {
  return {heads, kv_heads, head_dim, head_dim, false, 1.0f / std::sqrt(static_cast<float>(head_dim)), 0, 0, 1e-6f};
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main(int argc, char** argv) {
  using namespace pilotfish;
  using namespace pilotfish::cuda;
  using namespace pilotfish::cuda::test;
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  std::vector<Case> cases = {{"64, 9/3 heads", shape(9, 3, 64), small ? 150 : 700},
                             {.name = "512, norms, shared cache",
                              .shape = shape(4, 1, 512),
                              .num_tokens = small ? 150 : 400,
                              .with_norms = true,
                              .shares_cache = true}};
  AttentionShape windowed = shape(8, 2, 80), capped = shape(4, 4, 96), pairs = shape(32, 1, 128),
                 wide = shape(4, 2, 256), widest = shape(4, 2, 512), steep = shape(6, 2, 96), narrow = shape(6, 6, 12);
  windowed.sliding_window = 100;
  capped.softcap = 20;
  pairs.is_interleaved = true;
  pairs.rotary_dim = 64;
  wide.sliding_window = 300;
  widest.sliding_window = 300;
  widest.softcap = 20;
  widest.rotary_dim = 128;
  steep.sliding_window = 200;
  steep.softcap = 20;
  if (!small) {
    cases.push_back({"80, window 100", windowed, 420});
    cases.push_back({"96, softcap", capped, 300});
    cases.push_back({"128, 32/1 heads, pairs", pairs, 300});
    cases.push_back({"128, 32/32 heads", shape(32, 32, 128), 300});
    cases.push_back({"256, norms, window 300", wide, 400, true});
    cases.push_back({"40, 6/2 heads", shape(6, 2, 40), 200});
    cases.push_back({"512, window 300, softcap", widest, 400});
    cases.push_back({"12, 6/6 heads", narrow, 200, true});
    cases.push_back({"64, ALiBi", shape(8, 8, 64), 300, false, CacheType::kF16, true});
    cases.push_back({"96, ALiBi, window", steep, 300, true, CacheType::kF16, true});
    cases.push_back({"64, shared cache", shape(6, 2, 64), 300, true, CacheType::kF16, false, true});
    cases.push_back({.name = "64, biases by key", .shape = shape(6, 6, 64), .num_tokens = 300, .with_biases = true});
    cases.push_back({.name = "80, window, sinks", .shape = windowed, .num_tokens = 420, .with_sinks = true});
    cases.push_back(
        {.name = "512, norms of values", .shape = widest, .num_tokens = 300, .with_norms = true, .norms_values = true});
    cases.push_back({.name = "128, norms of values",
                     .shape = shape(8, 2, 128),
                     .num_tokens = 300,
                     .with_norms = true,
                     .norms_values = true});
    cases.push_back({"256, window, shared cache", wide, 400, true, CacheType::kF16, false, true});
  }
  for (Case c : cases) {
    for (const CacheType cache : kCacheTypes) {
      if (!is_on_gpus(cache)) continue;
      c.cache = cache;
      check_chain(c);
      check_together(c);
      check_tree(c, 40, 0);
      check_tree(c, 130, 12);
      check_tree(c, c.num_tokens - 20, 0);
      check_tree(c, c.num_tokens - 20, 12);
    }
  }
  std::printf(failures ? "%d FAILURES\n" : "all attention tests passed\n", failures);
  return failures ? 1 : 0;
}
