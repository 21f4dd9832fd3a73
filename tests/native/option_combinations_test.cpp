// What a request's options make of a row of logits, alone and in random
// combinations: scores, distribution and chosen token, against definitions in
// double precision.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "check.h"
#include "sampling/shared_noise.h"
#include "sampling/token_chooser.h"
#include "sampling_reference.h"

namespace {

using pilotfish::Distribution;
using pilotfish::Prefix;
using pilotfish::ProcessorOptions;
using pilotfish::Sampler;
using pilotfish::SamplingOptions;
using pilotfish::SharedNoise;
using pilotfish::TokenChooser;

using Ids = std::vector<int32_t>;
using Probs = std::map<int32_t, double>;

constexpr double kBanned = -std::numeric_limits<double>::infinity();
constexpr uint64_t kSeed = 77;

struct Row {
  std::vector<float> logits;
  Ids tokens;  // prompt and output, of few distinct ids, so that n-grams repeat
  int32_t num_prompt;
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}

  int32_t from(int32_t least, int32_t most) { return std::uniform_int_distribution<int32_t>(least, most)(engine_); }
  float real(float least, float most) { return std::uniform_real_distribution<float>(least, most)(engine_); }
  float one_of(std::initializer_list<float> values) {
    return values.begin()[from(0, static_cast<int32_t>(values.size()) - 1)];
  }

  Row row() {
    Row row{std::vector<float>(from(5, 400)), Ids(from(0, 20)), 0};
    std::normal_distribution<float> normal(0, one_of({0.5f, 3.0f}));
    for (float& logit : row.logits) logit = normal(engine_);
    row.num_prompt = static_cast<int32_t>(row.tokens.size());
    row.tokens.resize(row.tokens.size() + from(0, 20));
    for (int32_t& id : row.tokens) id = from(0, std::min<int32_t>(static_cast<int32_t>(row.logits.size()), 9) - 1);
    return row;
  }

 private:
  std::mt19937 engine_;
};

// Every option that changes scores, by its number, and the four filters.
constexpr int kNumProcessors = 8, kNumFilters = 4;

void turn_on(int option, Random& random, ProcessorOptions& options) {
  switch (option) {
    case 0:
      options.repetition_penalty = random.one_of({0.7f, 1.3f, 5.0f});
      break;
    case 1:
      options.presence_penalty = random.one_of({-0.5f, 0.8f, 2.0f});
      break;
    case 2:
      options.frequency_penalty = random.one_of({-0.3f, 0.6f, 2.0f});
      break;
    case 3:
      options.penalty_window = random.from(1, 12);
      break;
    case 4:
      options.no_repeat_ngram_size = random.from(1, 4);
      break;
    case 5:
      options.min_new_tokens = random.from(1, 8);
      break;
    case 6:
      for (int32_t id = 0, number = random.from(1, 3); id < number; ++id) options.end_ids.push_back(random.from(0, 4));
      break;
    case 7:
      for (int32_t id = 0; id < 5; ++id) {
        const float bias = random.one_of({static_cast<float>(kBanned), -3.0f, 0.5f, 4.0f});
        if (random.from(0, 1) == 1) options.logit_bias.push_back({id, bias});
      }
      break;
  }
}

void turn_on(int filter, Random& random, SamplingOptions& options) {
  switch (filter) {
    case 0:
      options.top_k = random.from(1, 50);
      break;
    case 1:
      options.top_p = random.real(0.01f, 0.999f);
      break;
    case 2:
      options.min_p = random.real(0.001f, 0.9f);
      break;
    case 3:
      options.typical_p = random.real(0.01f, 0.999f);
      break;
  }
}

void penalize(const ProcessorOptions& options, const Row& row, std::vector<double>& scores) {
  const auto size = static_cast<int32_t>(row.tokens.size());
  const int32_t begin = options.penalty_window > 0 ? std::max(0, size - options.penalty_window) : 0;
  std::set<int32_t> seen;
  std::map<int32_t, int32_t> generated;
  for (int32_t i = begin; i < size; ++i) {
    seen.insert(row.tokens[i]);
    if (i >= row.num_prompt) ++generated[row.tokens[i]];
  }
  for (const int32_t id : seen) {
    const double penalty = options.repetition_penalty;
    scores[id] = scores[id] > 0 ? scores[id] / penalty : scores[id] * penalty;
  }
  for (const auto& [id, count] : generated) {
    scores[id] -= double{options.presence_penalty} + double{options.frequency_penalty} * count;
  }
}

void ban(const ProcessorOptions& options, const Row& row, std::vector<double>& scores) {
  const auto size = static_cast<int32_t>(row.tokens.size());
  const int32_t num_before = options.no_repeat_ngram_size - 1;  // of an n-gram, before its last token
  for (int32_t last = num_before; num_before >= 0 && last < size; ++last) {
    const bool repeats = std::equal(row.tokens.end() - num_before, row.tokens.end(),
                                    row.tokens.begin() + (last - num_before), row.tokens.begin() + last);
    if (repeats) scores[row.tokens[last]] = kBanned;
  }
  if (size - row.num_prompt < options.min_new_tokens) {
    for (const int32_t id : options.end_ids) scores[id] = kBanned;
  }
}

std::vector<double> expected_scores(const ProcessorOptions& options, const Row& row) {
  std::vector<double> scores(row.logits.begin(), row.logits.end());
  for (const auto& [id, bias] : options.logit_bias) scores[id] += bias;
  penalize(options, row, scores);
  ban(options, row, scores);
  return scores;
}

void check_scores(std::span<const float> found, const std::vector<double>& expected) {
  CHECK_EQ(found.size(), expected.size());
  for (size_t id = 0; id < found.size(); ++id) {
    if (expected[id] == kBanned) {
      CHECK_EQ(found[id], static_cast<float>(kBanned));
    } else {
      CHECK_NEAR(found[id], expected[id], 1e-5 + 1e-5 * std::abs(expected[id]));
    }
  }
}

bool is_close(const Distribution& found, const Probs& expected) {
  double seen = 0;
  for (const auto& [id, prob] : expected) {
    if (!(std::abs(found.prob_of(id) - prob) <= 1e-4 * prob + 1e-6)) return false;
    seen += found.prob_of(id);
  }
  return std::abs(found.mass() - seen) < 1e-6;
}

// The id with the largest probability over its noise, of those that are likely
// enough to have some.
int32_t chosen(const Probs& probs, int32_t position) {
  const auto is_less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const double most = std::ranges::max_element(probs, is_less)->second;
  Probs scores;
  for (const auto& [id, prob] : probs) {
    std::array<float, SharedNoise::kBlock> noise;
    SharedNoise(kSeed).fill(position, id / SharedNoise::kBlock, noise);
    if (prob >= most * Sampler::kLeastWeight) scores[id] = prob / noise[id % SharedNoise::kBlock];
  }
  return std::ranges::max_element(scores, is_less)->first;
}

void check_row(const ProcessorOptions& processors, SamplingOptions sampling, const Row& row) {
  sampling.seed = kSeed;
  const auto size = static_cast<int32_t>(row.tokens.size());
  Sampler sampler(row.logits.size());
  TokenChooser chooser(sampling, sampler, processors,
                       {row.num_prompt, size + 1, static_cast<int32_t>(row.logits.size())});
  const Prefix prefix{.tokens = row.tokens, .path = {}};
  const std::vector<double> scores = expected_scores(processors, row);
  Distribution found;
  if (std::ranges::all_of(scores, [](double score) { return score == kBanned; })) {
    CHECK(chooser.scores(row.logits, prefix).empty());
    CHECK_EQ(chooser.choose(row.logits, prefix), TokenChooser::kNoToken);
    CHECK(chooser.is_greedy() || !chooser.distribution(row.logits, prefix, found));
    return;
  }
  check_scores(chooser.scores(row.logits, prefix), scores);
  const int32_t id = chooser.choose(row.logits, prefix);
  if (chooser.is_greedy()) {
    CHECK_EQ(id, std::ranges::max_element(scores) - scores.begin());
    return;
  }
  CHECK(chooser.distribution(row.logits, prefix, found));
  bool is_right = false;
  for (const double slack : {0.0, -1e-5, 1e-5}) {
    const Probs expected = sampling_reference::distribution(scores, sampling, slack);
    is_right = is_right || (is_close(found, expected) && id == chosen(expected, size));
  }
  CHECK(is_right);
}

void test_a_processor_alone() {
  Random random(1);
  for (int option = 0; option < kNumProcessors; ++option) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      ProcessorOptions processors;
      turn_on(option, random, processors);
      if (option == 3) processors.repetition_penalty = 2;  // a window of something
      if (option == 5) processors.end_ids = {1, 3};        // banned before the least length
      if (option == 6) processors.min_new_tokens = 6;      // the same
      check_row(processors, {.temperature = repeat % 2 == 0 ? 0.0f : 1.0f}, random.row());
    }
  }
}

void test_a_filter_alone() {
  Random random(2);
  for (int filter = 0; filter < kNumFilters; ++filter) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      SamplingOptions sampling{.temperature = random.one_of({0.3f, 1.0f, 1.7f})};
      turn_on(filter, random, sampling);
      check_row({}, sampling, random.row());
    }
  }
}

// Calls use(processors, sampling, row) for each of the 2^12 sets of options, on
// a row of its own.
template <typename Use>
void for_all_combinations(unsigned seed, std::initializer_list<float> temperatures, const Use& use) {
  Random random(seed);
  for (int set = 0; set < 1 << (kNumProcessors + kNumFilters); ++set) {
    ProcessorOptions processors;
    SamplingOptions sampling{.temperature = random.one_of(temperatures)};
    for (int option = 0; option < kNumProcessors; ++option) {
      if (set >> option & 1) turn_on(option, random, processors);
    }
    for (int filter = 0; filter < kNumFilters; ++filter) {
      if (set >> (kNumProcessors + filter) & 1) turn_on(filter, random, sampling);
    }
    use(processors, sampling, random.row());
  }
}

void test_all_combinations() { for_all_combinations(3, {0.0f, 0.3f, 1.0f, 1.7f}, check_row); }

// Pearson's statistic, and its degrees of freedom.
struct Statistic {
  double sum = 0;
  int freedom = 0;
};

// Of the tokens that kNumSeeds seeds choose, beside the distribution that
// check_row() holds right. Ids that are expected less than five times count
// together.
Statistic drawn(const ProcessorOptions& processors, SamplingOptions sampling, const Row& row) {
  constexpr int kNumSeeds = 200;
  constexpr double kLeastExpected = 5;
  const auto num_ids = static_cast<int32_t>(row.logits.size());
  const pilotfish::SequenceLimits limits{row.num_prompt, static_cast<int32_t>(row.tokens.size()) + 1, num_ids};
  const Prefix prefix{.tokens = row.tokens, .path = {}};
  Sampler sampler(row.logits.size());
  Distribution exact;
  if (!TokenChooser(sampling, sampler, processors, limits).distribution(row.logits, prefix, exact)) return {};
  std::vector<int> counts(num_ids);
  for (int seed = 0; seed < kNumSeeds; ++seed) {
    sampling.seed = static_cast<uint64_t>(seed);
    ++counts[TokenChooser(sampling, sampler, processors, limits).choose(row.logits, prefix)];
  }
  Statistic found{.sum = 0, .freedom = -1};
  const auto add = [&found](double seen, double expected) {
    if (expected < kLeastExpected) return;
    found.sum += (seen - expected) * (seen - expected) / expected;
    ++found.freedom;
  };
  double rest = 0, seen_rest = 0;
  for (int32_t id = 0; id < num_ids; ++id) {
    const double expected = kNumSeeds * exact.prob_of(id);
    CHECK(expected > 0 || counts[id] == 0);
    add(counts[id], expected);
    if (expected < kLeastExpected) {
      rest += expected;
      seen_rest += counts[id];
    }
  }
  add(seen_rest, rest);
  return found.freedom > 0 ? found : Statistic{};
}

// All sets together: the sum of their statistics has the mean of its degrees of
// freedom, and twice that as its variance.
void test_draws_of_all_combinations() {
  Statistic all;
  for_all_combinations(4, {0.3f, 1.0f, 1.7f}, [&all](const auto& processors, const auto& sampling, const Row& row) {
    const Statistic found = drawn(processors, sampling, row);
    CHECK(found.sum < found.freedom + 8 * std::sqrt(2.0 * found.freedom) + 15);
    all.sum += found.sum;
    all.freedom += found.freedom;
  });
  CHECK(all.freedom > 4000);
  CHECK_NEAR((all.sum - all.freedom) / std::sqrt(2.0 * all.freedom), 0, 4);
}

}  // namespace

int main() {
  test_a_processor_alone();
  test_a_filter_alone();
  test_all_combinations();
  test_draws_of_all_combinations();
  return check::result();
}
