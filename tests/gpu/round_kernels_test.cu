// The kernels of a round against double oracles: choices of rows, greedy and with the noise that the host has, and the
// distribution that those follow.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gpu_test.h"
#include "kernels.h"
#include "round_test.h"
#include "sampling/shared_noise.h"

namespace pilotfish::cuda::test {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

void test_likeliest(int num_logits, int num_choices, int num_rows, bool coarse) {
  const std::string name = "likeliest of " + std::to_string(num_rows) + " x " + std::to_string(num_logits);
  const size_t count = size_t(num_rows) * num_logits;
  const std::vector<float> logits = coarse ? coarse_logits(count, 5) : random_floats(count, 5);
  const DeviceArray<float> device_logits(logits);
  const Rounds rounds({settings_of(1, 0, 1, 0, 1)}, num_logits);
  CUDA_CHECK(launch_round_start(rounds.memory(), nullptr));
  const TargetChoice choice{{device_logits.get(), num_rows, num_logits, num_choices}, rounds.target_ids()};
  for (int repeat = 0; repeat < 2; ++repeat) CUDA_CHECK(launch_choose_likeliest(choice, rounds.memory(), nullptr));
  const RoundOutcome outcome = rounds.outcomes.read()[0];
  expect(outcome.is_broken == 0, name + ": broken");
  for (int row = 0; row < num_rows; ++row) {
    const float* const first = logits.data() + size_t(row) * num_logits;
    const auto best = static_cast<int>(std::max_element(first, first + num_choices) - first);
    expect(outcome.chosen_ids[row] == best, name + ": row " + std::to_string(row));
    const double logprob = first[best] - log_sum(first, num_logits);
    expect(std::abs(outcome.logprobs[row] - logprob) < 2e-6 * (1 + std::abs(logprob)), name + ": logprob");
  }
}

/// Indices that the filters keep, in their order of `src/sampler.h`, and probabilities.
std::vector<double> oracle(const float* row, int num_choices, const RoundSettings& s) {
  std::vector<int> order(num_choices);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
  std::vector<double> weights(num_choices);
  for (int i = 0; i < num_choices; ++i) weights[i] = std::exp((double(row[i]) - row[order[0]]) * s.inverse_temperature);
  size_t kept = order.size();
  if (s.top_k > 0 && s.top_k < num_choices) {
    kept = s.top_k;
    while (kept < order.size() && row[order[kept]] == row[order[kept - 1]]) ++kept;
  }
  double mass = 0;
  for (size_t i = 0; i < kept; ++i) mass += weights[order[i]];
  if (s.top_p < 1) {
    double sum = 0;
    size_t i = 0;
    while (i < kept && sum < double(s.top_p) * mass) sum += weights[order[i++]];
    kept = i;
  }
  while (kept > 0 && weights[order[kept - 1]] < s.min_p) --kept;
  mass = 0;
  for (size_t i = 0; i < kept; ++i) mass += weights[order[i]];
  std::vector<double> probs(num_choices);
  for (size_t i = 0; i < kept; ++i) probs[order[i]] = weights[order[i]] / mass;
  return probs;
}

/// Pearson's statistic in standard deviations from its mean.
double chi_square(const std::vector<double>& counts, const std::vector<double>& probs) {
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  double statistic = 0, freedom = -1;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (probs[i] == 0) {
      if (counts[i] > 0) return std::numeric_limits<double>::infinity();
      continue;
    }
    const double expected = total * probs[i];
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++freedom;
  }
  return freedom > 0 ? (statistic - freedom) / std::sqrt(2 * freedom) : 0;
}

/// The token of the largest probability over the host's own noise, unless the next one is as good but for rounding.
void test_noisy(int num_logits, int num_choices, const RoundSettings& wanted, bool coarse, bool trimmed) {
  const int num_rows = 5;
  const size_t count = size_t(num_rows) * num_logits;
  std::vector<float> logits = coarse ? coarse_logits(count, 9) : random_floats(count, 9);
  if (!coarse) {
    for (float& logit : logits) logit *= 3;
  }
  std::vector<int32_t> ids(num_choices);
  for (int i = 0; i < num_choices; ++i) ids[i] = trimmed ? 3 * i + 1 : i;
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<int32_t> device_ids(ids);
  const Rounds rounds({wanted}, num_logits);
  CUDA_CHECK(launch_round_start(rounds.memory(), nullptr));
  const LogitRows rows{device_logits.get(), num_rows, num_logits, num_choices};
  const TargetChoice choice{.rows = rows, .target_ids = rounds.target_ids(), .is_noisy = !trimmed};
  CUDA_CHECK(launch_add_noise({.rows = rows,
                               .logits = device_logits.get(),
                               .logit_ids = trimmed ? device_ids.get() : nullptr,
                               .has_one_depth = trimmed,
                               .depth = 2},
                              rounds.memory(), nullptr));
  CUDA_CHECK(launch_choose_likeliest(choice, rounds.memory(), nullptr));
  const RoundOutcome outcome = rounds.outcomes.read()[0];
  const SharedNoise noise(uint64_t{wanted.key[1]} << 32 | wanted.key[0]);
  const std::string name = "noise on " + std::to_string(num_logits) + ", temperature " +
                           std::to_string(1 / wanted.inverse_temperature) + ", top-k " + std::to_string(wanted.top_k) +
                           ", top-p " + std::to_string(wanted.top_p) + ", min-p " + std::to_string(wanted.min_p) +
                           (coarse ? ", ties" : "") + (trimmed ? ", trimmed" : "");
  int num_different = 0;
  for (int row = 0; row < num_rows; ++row) {
    const float* const first = logits.data() + size_t(row) * num_logits;
    const std::vector<double> probs = oracle(first, num_choices, wanted);
    const double most = *std::max_element(probs.begin(), probs.end());
    const auto score_of = [&](int index) {
      std::array<float, SharedNoise::kBlock> numbers;
      noise.fill(wanted.first_position + (trimmed ? 2 : row), ids[index] / SharedNoise::kBlock, numbers);
      return probs[index] < most * 0x1p-24 ? 0 : probs[index] / numbers[ids[index] % SharedNoise::kBlock];
    };
    int best = 0;
    double best_score = 0;
    for (int i = 0; i < num_choices; ++i) {
      if (probs[i] == 0) continue;
      if (const double score = score_of(i); score > best_score) best = i, best_score = score;
    }
    const int found = outcome.chosen_ids[row];
    num_different += found != best ? 1 : 0;
    // A token at the border of a filter may fall on either side by rounding.
    expect(found == best || score_of(found) > best_score * (1 - 1e-4), name + ": token of row " + std::to_string(row));
    if (trimmed) continue;
    const double logprob = first[found] - log_sum(first, num_logits);
    expect(std::abs(outcome.logprobs[row] - logprob) < 1e-4 * std::max(1.0f, 1 / wanted.inverse_temperature),
           name + ": logprob");
  }
  expect(outcome.is_broken == 0, name + ": broken");
  std::printf("%-100s %d of %d by rounding\n", name.c_str(), num_different, num_rows);
}

/// Over many seeds the first row's choices follow the exact distribution.
void test_distribution(const RoundSettings& wanted) {
  constexpr int kTokens = 24, kRounds = 40000;
  const std::vector<float> p = random_floats(kTokens, 21);
  std::vector<RoundSettings> all(kRounds, wanted);
  for (int i = 0; i < kRounds; ++i) all[i].key[0] = 1000 + i;
  const Rounds rounds(all, kTokens);
  const DeviceArray<float> fresh(p), noisy(p);
  const LogitRows rows{noisy.get(), 1, kTokens, kTokens};
  for (int round = 0; round < kRounds; ++round) {
    const RoundMemory memory = rounds.memory(round);
    CUDA_CHECK(cudaMemcpyAsync(noisy.get(), fresh.get(), p.size() * sizeof(float), cudaMemcpyDeviceToDevice, nullptr));
    CUDA_CHECK(launch_round_start(memory, nullptr));
    CUDA_CHECK(launch_add_noise({.rows = rows, .logits = noisy.get()}, memory, nullptr));
    const TargetChoice choice{.rows = rows, .target_ids = rounds.target_ids(), .is_noisy = true};
    CUDA_CHECK(launch_choose_likeliest(choice, memory, nullptr));
  }
  std::vector<double> counts(kTokens);
  for (const RoundOutcome& outcome : rounds.outcomes.read()) ++counts[outcome.next_id];
  const double deviations = chi_square(counts, oracle(p.data(), kTokens, wanted));
  std::printf("choices over seeds, top-k %d: chi-square %.1f deviations\n", wanted.top_k, deviations);
  expect(std::abs(deviations) < 4, "choices over seeds");
}

/// The next pass of a draft gets the token, its position and its length.
void test_draft_step() {
  const std::vector<float> logits = random_floats(1000, 3);
  const std::vector<int32_t> ids = [] {
    std::vector<int32_t> all(1000);
    for (int i = 0; i < 1000; ++i) all[i] = 3 * i + 1;
    return all;
  }();
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<int32_t> device_ids(ids);
  const Rounds rounds({settings_of(1, 0, 1, 0, 1)}, 1000);
  CUDA_CHECK(launch_round_start(rounds.memory(), nullptr));
  const DraftStep step{{device_logits.get(), 1, 1000, 1000}, device_ids.get(), 4, rounds.inputs(), rounds.target_ids()};
  CUDA_CHECK(launch_choose_likeliest(step, rounds.memory(), nullptr));
  const int best = static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::vector<int32_t> pass = rounds.pass.read();
  const RoundOutcome outcome = rounds.outcomes.read()[0];
  expect(pass[0] == ids[best] && pass[64] == 11 && pass[129] == 1 && pass[192] == 11 && pass[256] == 0,
         "inputs of a step");
  expect(pass[320 + 5] == ids[best] && outcome.drafted_ids[4] == ids[best], "token of a step");
}

/// Rows of several sequences in one launch choose what those of each choose alone: chains and trees of different
/// lengths, greedy and sampled ones, and rows of nobody behind them.
void test_sequences(bool are_trees) {
  constexpr int kLogits = 5000, kSequences = 4, kPadding = 3;
  const std::array<int, kSequences> counts{3, 1, 6, 2};
  const std::array<std::vector<int32_t>, kSequences> depths{{{0, 1, 1}, {0}, {0, 1, 1, 2, 2, 3}, {0, 1}}};
  std::vector<RoundSettings> settings;
  for (int s = 0; s < kSequences; ++s) {
    settings.push_back(settings_of(0.7f + 0.1f * s, 40, 0.9f, 0, 30 + s));
    settings.back().first_position = 100 * s + 5;
    settings.back().is_greedy = s == 2 ? 1 : 0;
  }
  std::vector<int32_t> starts{0}, positions;
  for (int s = 0; s < kSequences; ++s) {
    starts.push_back(starts.back() + counts[s]);
    for (int row = 0; row < counts[s]; ++row)
      positions.push_back(settings[s].first_position - 1 + (are_trees ? depths[s][row] : row));
  }
  const int num_used = starts.back(), num_rows = num_used + kPadding;
  positions.resize(num_rows);
  const std::vector<float> logits = random_floats(size_t(num_rows) * kLogits, 77);
  const DeviceArray<int32_t> seq_starts(starts), position_ids(positions);
  const auto choose = [&](const Rounds& rounds, const LogitRows& rows, float* data, const int32_t* position) {
    CUDA_CHECK(launch_round_start(rounds.memory(), nullptr));
    CUDA_CHECK(launch_add_noise({.rows = rows, .logits = data, .position_ids = position}, rounds.memory(), nullptr));
    const TargetChoice choice{
        .rows = rows, .target_ids = rounds.target_ids(), .position_ids = position, .is_noisy = true};
    CUDA_CHECK(launch_choose_likeliest(choice, rounds.memory(), nullptr));
    return rounds.outcomes.read()[0];
  };
  const DeviceArray<float> all(logits);
  const RoundOutcome together = choose(Rounds(settings, kLogits),
                                       {.logits = all.get(),
                                        .num_rows = num_rows,
                                        .num_logits = kLogits,
                                        .num_choices = kLogits,
                                        .seq_starts = seq_starts.get(),
                                        .num_seqs = kSequences},
                                       all.get(), are_trees ? position_ids.get() : nullptr);
  expect(together.is_broken == 0, "sequences: broken");
  for (int s = 0; s < kSequences; ++s) {
    const int first = starts[s];
    const DeviceArray<float> own(
        std::vector<float>(logits.begin() + size_t(first) * kLogits, logits.begin() + size_t(starts[s + 1]) * kLogits));
    const RoundOutcome alone = choose(Rounds({settings[s]}, kLogits), {own.get(), counts[s], kLogits, kLogits},
                                      own.get(), are_trees ? position_ids.get() + first : nullptr);
    for (int row = 0; row < counts[s]; ++row) {
      expect(together.chosen_ids[first + row] == alone.chosen_ids[row] &&
                 together.logprobs[first + row] == alone.logprobs[row],
             "row " + std::to_string(row) + " of sequence " + std::to_string(s));
    }
  }
  std::printf("%d sequences of %s in one choice\n", kSequences, are_trees ? "trees" : "chains");
}

void test_broken() {
  std::vector<float> logits = random_floats(3000, 3);
  logits[2999] = std::numeric_limits<float>::quiet_NaN();
  const DeviceArray<float> device_logits(logits);
  const Rounds rounds({settings_of(1, 0, 1, 0, 1)}, 3000);
  for (const bool is_noisy : {false, true}) {
    CUDA_CHECK(launch_round_start(rounds.memory(), nullptr));
    const LogitRows rows{device_logits.get(), 1, 3000, 3000};
    if (is_noisy) CUDA_CHECK(launch_add_noise({.rows = rows, .logits = device_logits.get()}, rounds.memory(), nullptr));
    const TargetChoice choice{.rows = rows, .target_ids = rounds.target_ids(), .is_noisy = is_noisy};
    CUDA_CHECK(launch_choose_likeliest(choice, rounds.memory(), nullptr));
    expect(rounds.outcomes.read()[0].is_broken == 1, "a row that is not of numbers");
  }
}

}  // namespace
}  // namespace pilotfish::cuda::test

int main() {
  using namespace pilotfish::cuda::test;
  for (const bool coarse : {false, true}) {
    for (const int width : {7, 1000, 32000, 152064}) test_likeliest(width, width - (width > 7 ? 3 : 0), 9, coarse);
    for (const int width : {7, 1000, 49152, 152064}) {
      for (const auto& wanted :
           {settings_of(1, 0, 1, 0, 3), settings_of(0.7f, 40, 1, 0, 4), settings_of(1, 0, 0.9f, 0, 5),
            settings_of(8, 0, 0.95f, 0, 6), settings_of(1, 0, 1, 0.05f, 7), settings_of(0.8f, 50, 0.9f, 0.02f, 8),
            settings_of(1.5f, 3000, 0.99f, 0, 9)}) {
        for (const bool trimmed : {false, true}) test_noisy(width, width, wanted, coarse, trimmed);
      }
    }
  }
  test_draft_step();
  test_sequences(false);
  test_sequences(true);
  test_broken();
  test_distribution(settings_of(1, 0, 1, 0, 0));
  test_distribution(settings_of(0.8f, 10, 0.95f, 0, 0));
  std::printf(failures ? "%d FAILURES\n" : "all round kernel tests passed\n", failures);
  return failures ? 1 : 0;
}
