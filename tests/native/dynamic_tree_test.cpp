// Dynamic trees against a search through all paths, drafted with heads that
// score a level in one row.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "check.h"
#include "draft/model_drafter.h"
#include "text_request.h"

namespace {

using namespace pilotfish;

constexpr int32_t kNumIds = 300;

// Logits of level k are row k, whatever the path; of a device, only the
// likeliest of each are read.
class LevelRows final : public DraftRows {
 public:
  LevelRows(int32_t num_levels, float spread, uint32_t seed, bool is_device)
      : num_levels_(num_levels), is_device_(is_device), logits_(size_t(num_levels) * kNumIds) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, spread);
    for (float& logit : logits_) logit = normal(random);
  }

  std::span<const float> row(int32_t level) const {
    return std::span(logits_).subspan(size_t(level) * kNumIds, kNumIds);
  }
  // After a softmax.
  double prob(int32_t level, int32_t id) const {
    double sum = 0;
    for (const float value : row(level)) sum += std::exp(value);
    return std::exp(row(level)[id]) / sum;
  }

  Source source() const noexcept override { return Source::kHead; }
  int32_t num_logits() const noexcept override { return kNumIds; }
  std::span<const int32_t> logit_ids() const noexcept override { return {}; }
  int32_t max_depth() const noexcept override { return num_levels_; }
  int32_t max_rows() const noexcept override { return TokenTree::kMaxTokens; }
  std::optional<Logits> begin(const DraftRequest&, Draft&) override { return level(0, 1); }
  Logits run_level(const DraftRequest&, const TokenTree& tree, std::span<const int32_t> level_tokens) override {
    return level(tree[level_tokens[0]].depth, static_cast<int32_t>(level_tokens.size()));
  }

 private:
  Logits level(int32_t depth, int32_t num_rows) {
    Logits logits{.data = row(depth).data(), .num_rows = num_rows, .width = kNumIds, .is_one_row = true};
    if (!is_device_) return logits;
    likely_ = likely_row(depth);
    logits.data = nullptr;
    logits.likeliest = {&likely_, 1};
    return logits;
  }
  LikelyRow likely_row(int32_t depth) const {
    LikelyRow found{};
    std::vector<int32_t> order(kNumIds);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row(depth)[a] > row(depth)[b]; });
    for (int32_t rank = 0; rank < kMostLikely; ++rank) {
      found.indices[rank] = order[rank];
      found.logits[rank] = row(depth)[order[rank]];
    }
    found.log_sum = found.logits[0] - static_cast<float>(std::log(prob(depth, order[0])));
    return found;
  }

  const int32_t num_levels_;
  const bool is_device_;
  std::vector<float> logits_;
  LikelyRow likely_{};
};

TokenTree draft(DraftRows& rows, int32_t num_tokens) {
  ModelDrafter drafter(rows, kNumIds);
  Draft out;
  out.clear({num_tokens, rows.max_depth()}, 0, TokenTree::kMaxTokens);
  CHECK(TextRequest({1, 2}, kNumIds).propose(drafter, out));
  return out.tree;
}

// The probabilities of all paths of the likeliest `most` tokens of each level,
// in order.
std::vector<double> all_paths(const LevelRows& rows, size_t most) {
  std::vector<double> level{1}, found;
  for (int32_t depth = 0; depth < rows.max_depth(); ++depth) {
    std::vector<double> probs, next;
    for (int32_t id = 0; id < kNumIds; ++id) probs.push_back(rows.prob(depth, id));
    std::sort(probs.begin(), probs.end(), std::greater<>());
    probs.resize(most);
    for (const double parent : level) {
      for (const double prob : probs) next.push_back(parent * prob);
    }
    found.insert(found.end(), next.begin(), next.end());
    level = std::move(next);
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  return found;
}

// As likely as any tree of 15 tokens with 8 children at most: no beam or order
// of growth loses any.
void test_is_the_likeliest_tree() {
  for (uint32_t seed = 0; seed < 24; ++seed) {
    LevelRows rows(4, 2.0f + static_cast<float>(seed % 4), seed, seed % 2 == 1);
    const TokenTree tree = draft(rows, 15);
    const std::vector<double> expected = all_paths(rows, 8);
    std::vector<double> found;
    for (const TreeToken& token : tree.tokens()) found.push_back(token.path_prob);
    std::sort(found.begin(), found.end(), std::greater<>());
    CHECK_EQ(found.size(), size_t{15});
    for (size_t i = 0; i < found.size(); ++i) CHECK_NEAR(found[i] / expected[i], 1, 1e-4);
  }
}

}  // namespace

int main() {
  test_is_the_likeliest_tree();
  return check::result();
}
