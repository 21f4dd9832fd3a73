// The default acceptance: with shared noise the text is plain decoding's, follows the exact distribution, and a draft
// that chooses with the same noise is right as often as the theory says.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "chi_square.h"
#include "round/accept.h"
#include "toy_target.h"

namespace {

using check::chi_square;
using check::kChiSquareLimit;
using check::kFirst;
using check::kNumIds;
using check::logs;
using check::Probs;
using check::second_after;
using pilotfish::Accepted;
using pilotfish::Distribution;
using pilotfish::Prefix;
using pilotfish::Ranked;
using pilotfish::Sampler;
using pilotfish::SamplingOptions;
using pilotfish::TokenChooser;
using pilotfish::TokenTree;

constexpr int kNumRequests = 20000;
constexpr int32_t kNumBefore = 10;  // tokens of the sequence
const std::vector<int32_t> kBefore(kNumBefore);
const Probs kNear{0.06f, 0.09f, 0.2f, 0.15f, 0.25f, 0.25f};
const Probs kFar{0.6f, 0.3f, 0.05f, 0.03f, 0.01f, 0.01f};

SamplingOptions with_seed(SamplingOptions options, int seed) {
  options.seed = static_cast<uint64_t>(seed);
  return options;
}

double total_variation(const Probs& p, const Probs& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::abs(p[i] - q[i]) / 2;
  return sum;
}

// The `count` best tokens of a draft that gives these logits at the position after `prefix`.
std::vector<int32_t> best_of(TokenChooser& chooser, const std::vector<float>& logits, const Prefix& prefix, int count) {
  std::vector<int32_t> ids;
  for (const Ranked& token : chooser.rank(logits, prefix, count)) ids.push_back(token.id);
  return ids;
}

// The token after the sequence and the one after that.
std::vector<int32_t> plain(TokenChooser& chooser) {
  const int32_t first = chooser.choose(logs({kFirst}), {kBefore, {}});
  return {first, chooser.choose(logs({second_after(first)}), {kBefore, {&first, 1}})};
}

// Drafts a tree of two levels, `width` children a token, and verifies it: the tokens that come out, at least one.
std::vector<int32_t> speculate(TokenChooser& chooser, const Probs& q, int width) {
  TokenTree tree;
  const std::vector<float> draft = logs({q});
  for (const int32_t id : best_of(chooser, draft, {kBefore, {}}, width)) tree.add(id, TokenTree::kRoot);
  const int32_t num_first = tree.size();
  for (int32_t parent = 0; parent < num_first; ++parent) {
    const int32_t id = tree[parent].id;
    for (const int32_t below : best_of(chooser, draft, {kBefore, {&id, 1}}, width)) tree.add(below, parent);
  }
  std::vector<Probs> rows{kFirst};
  for (int32_t i = 0; i < tree.size(); ++i) rows.push_back(tree[i].depth == 1 ? second_after(tree[i].id) : kFirst);
  const std::vector<float> logits = logs(rows);
  const Accepted accepted = pilotfish::accept_equal({.tree = tree,
                                                     .target = {logits.data(), tree.size() + 1, kNumIds},
                                                     .num_ids = kNumIds,
                                                     .tokens = kBefore,
                                                     .chooser = chooser});
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < accepted.num_accepted; ++i) tokens.push_back(tree[accepted.path[i]].id);
  tokens.push_back(accepted.next_id);
  return tokens;
}

void test_the_text_is_plain_decodings() {
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 0.7f, .top_k = 4, .top_p = 0.9f}}) {
    Sampler sampler(kNumIds);
    for (int seed = 0; seed < 1000; ++seed) {
      TokenChooser chooser(with_seed(options, seed), sampler);
      const std::vector<int32_t> expected = plain(chooser);
      for (const Probs& q : {kFirst, kNear, kFar}) {
        for (const int width : {1, 2, 3}) {
          const std::vector<int32_t> found = speculate(chooser, q, width);
          for (size_t i = 0; i < std::min(found.size(), size_t{2}); ++i) CHECK_EQ(found[i], expected[i]);
        }
      }
    }
  }
}

// Over seeds, against what the filters leave by another way (Sampler::process), with each option alone and together.
void test_plain_decoding_follows_the_exact_distribution() {
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 0.5f}, SamplingOptions{.temperature = 2},
        SamplingOptions{.temperature = 1, .top_k = 3}, SamplingOptions{.temperature = 1, .top_p = 0.6f},
        SamplingOptions{.temperature = 1, .min_p = 0.4f}, SamplingOptions{.temperature = 1, .typical_p = 0.6f},
        SamplingOptions{.temperature = 0.8f, .top_k = 5, .top_p = 0.95f, .min_p = 0.1f, .typical_p = 0.9f}}) {
    Sampler sampler(kNumIds);
    Distribution exact;
    CHECK(sampler.process(logs({kFirst}), options, exact));
    Probs probs(kNumIds);
    for (int32_t id = 0; id < kNumIds; ++id) probs[id] = exact.prob_of(id);
    std::vector<int> over_seeds(kNumIds), over_positions(kNumIds);
    const std::vector<int32_t> long_text(kNumRequests);
    for (int i = 0; i < kNumRequests; ++i) {
      TokenChooser chooser(with_seed(options, i), sampler);
      ++over_seeds[chooser.choose(logs({kFirst}), {kBefore, {}})];
      TokenChooser one_seed(with_seed(options, 3), sampler);
      ++over_positions[one_seed.choose(logs({kFirst}), {std::span(long_text).first(i), {}})];
    }
    CHECK(chi_square(over_seeds, probs, kNumRequests) < kChiSquareLimit);
    CHECK(chi_square(over_positions, probs, kNumRequests) < kChiSquareLimit);
  }
}

void test_tokens_of_hardly_any_weight_are_never_chosen() {
  std::vector<float> logits(3000, -17.0f);  // exp(-17) is less than 2^-24
  logits[7] = 0;
  logits[9] = -16;
  Sampler sampler(logits.size());
  TokenChooser chooser({.temperature = 1, .seed = 1}, sampler);
  std::vector<int32_t> ids;
  for (const Ranked& token : chooser.rank(logits, {kBefore, {}}, Sampler::kMostRanked)) ids.push_back(token.id);
  std::ranges::sort(ids);
  CHECK(ids == std::vector<int32_t>({7, 9}));
}

void test_no_token_and_no_numbers() {
  Sampler sampler(kNumIds);
  TokenChooser chooser({.temperature = 1}, sampler);
  const float nothing = -std::numeric_limits<float>::infinity(), nan = std::nanf("");
  CHECK_EQ(chooser.choose(std::vector<float>(kNumIds, nothing), {kBefore, {}}), TokenChooser::kNoToken);
  CHECK_EQ(chooser.choose(std::vector<float>{1, 2, nan, 0, 0, 0}, {kBefore, {}}), TokenChooser::kNoToken);
  CHECK_EQ(chooser.choose(std::vector<float>{1, -nothing, 0, 0, 0, 0}, {kBefore, {}}), TokenChooser::kNoToken);
  CHECK_EQ(chooser.choose(std::vector<float>{nothing, nothing, 3, nothing}, {kBefore, {}}), 2);
}

// Of rows of any size and kind, with filters and without: what looking at every token gives.
void test_no_block_is_missed() {
  std::mt19937 random(4);
  for (const size_t size : {1, 63, 64, 65, 1000, 5000}) {
    for (const float spread : {0.0f, 0.5f, 3.0f, 30.0f}) {
      for (const SamplingOptions& options :
           {SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 0.3f, .top_k = 40},
            SamplingOptions{.temperature = 1.5f, .top_p = 0.9f},
            SamplingOptions{.temperature = 1, .typical_p = 0.8f}}) {
        std::vector<float> logits(size);
        for (float& logit : logits) logit = std::normal_distribution<float>(0, spread + 1e-9f)(random);
        Sampler sampler(size);
        const pilotfish::SharedNoise noise(random());
        Distribution exact;
        CHECK(sampler.process(logits, options, exact));
        const float peak = *std::ranges::max_element(exact.probs);
        std::vector<Ranked> expected;
        std::array<float, 64> numbers;
        for (size_t i = 0; i < exact.probs.size(); ++i) {
          const int32_t id = exact.is_dense ? static_cast<int32_t>(i) : exact.ids[i];
          if (exact.probs[i] < peak * 0x1p-24f) continue;
          noise.fill(11, id / 64, numbers);
          expected.push_back({id, exact.probs[i] / numbers[id % 64]});
        }
        std::ranges::sort(expected, std::greater<>(), &Ranked::score);
        for (const size_t count : {1, 8, 64}) {
          const auto found = sampler.rank(logits, options, noise, 11, count);
          CHECK_EQ(found.size(), std::min(count, expected.size()));
          for (size_t i = 0; i < found.size(); ++i) {
            // Of two that differ by rounding alone either may be the first.
            CHECK(found[i].id == expected[i].id ||
                  found[i].score > (1 - 1e-5f) * found[std::max<size_t>(i, 1) - 1].score ||
                  (i + 1 < found.size() && found[i + 1].score > (1 - 1e-5f) * found[i].score));
          }
        }
      }
    }
  }
}

// At least (1 - d) / (1 + d), and always where the draft is the target; more candidates are right more often.
void test_acceptance() {
  Sampler sampler(kNumIds);
  for (const Probs& q : {kFirst, kNear, kFar}) {
    const double d = total_variation(kFirst, q);
    double before = 0;
    for (const int width : {1, 2, 3}) {
      int num_right = 0;
      for (int seed = 0; seed < kNumRequests; ++seed) {
        TokenChooser chooser({.temperature = 1, .seed = static_cast<uint64_t>(seed)}, sampler);
        const int32_t chosen = chooser.choose(logs({kFirst}), {kBefore, {}});
        const std::vector<int32_t> ids = best_of(chooser, logs({q}), {kBefore, {}}, width);
        num_right += std::ranges::find(ids, chosen) != ids.end() ? 1 : 0;
      }
      const double rate = double(num_right) / kNumRequests;
      CHECK(rate >= (1 - d) / (1 + d) - 0.01);
      if (d == 0) CHECK_EQ(num_right, kNumRequests);
      if (d > 0) CHECK(rate > before);
      if (d > 0 && width == 1) CHECK(rate < 1 - d + 0.01);  // no coupling does better
      before = rate;
    }
  }
}

}  // namespace

int main() {
  test_the_text_is_plain_decodings();
  test_plain_decoding_follows_the_exact_distribution();
  test_tokens_of_hardly_any_weight_are_never_chosen();
  test_no_token_and_no_numbers();
  test_no_block_is_missed();
  test_acceptance();
  return check::result();
}
