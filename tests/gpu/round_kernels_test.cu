// The kernels of a round against double oracles: choices of rows, processed distributions, drawn tokens from the
// numbers of the host's random stream, and the distribution of what lossless acceptance lets through.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gpu_test.h"
#include "kernels.h"
#include "round_test.h"
#include "sampling/random_stream.h"

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

void test_drawn(int num_logits, int num_choices, const RoundSettings& wanted, bool coarse) {
  const int num_rows = 5;
  const size_t count = size_t(num_rows) * num_logits;
  std::vector<float> logits = coarse ? coarse_logits(count, 9) : random_floats(count, 9);
  if (!coarse) {
    for (float& logit : logits) logit *= 3;
  }
  const DeviceArray<float> device_logits(logits);
  const Rounds rounds({wanted}, num_logits);
  CUDA_CHECK(launch_round_start(rounds.memory(), nullptr));
  const TargetChoice choice{{device_logits.get(), num_rows, num_logits, num_choices}, rounds.target_ids()};
  CUDA_CHECK(launch_choose_drawn(choice, rounds.memory(), true, nullptr));
  const RoundOutcome outcome = rounds.outcomes.read()[0];
  const std::vector<RowDistribution> rows = rounds.target_rows.read();
  const RandomStream random(uint64_t{wanted.key[1]} << 32 | wanted.key[0]);
  const std::string name = "drawn from " + std::to_string(num_logits) + ", temperature " +
                           std::to_string(1 / wanted.inverse_temperature) + ", top-k " + std::to_string(wanted.top_k) +
                           ", top-p " + std::to_string(wanted.top_p) + ", min-p " + std::to_string(wanted.min_p) +
                           (coarse ? ", ties" : "");
  double worst = 0;
  for (int row = 0; row < num_rows; ++row) {
    const float* const first = logits.data() + size_t(row) * num_logits;
    const std::vector<double> probs = oracle(first, num_choices, wanted);
    const double most = *std::max_element(probs.begin(), probs.end());
    worst = std::max(worst, std::abs(rows[row].inverse_mass / most - 1));
    const double u = random.uniform(wanted.first_position + row, RandomStream::Purpose::kTarget);
    const int id = outcome.chosen_ids[row];
    double before = 0;
    for (int i = 0; i < id; ++i) before += probs[i];
    expect(probs[id] > 0 && u > before - 1e-5 && u < before + probs[id] + 1e-5,
           name + ": token of row " + std::to_string(row));
    expect(std::abs(outcome.logprobs[row] - (first[id] - log_sum(first, num_logits))) < 1e-4, name + ": logprob");
  }
  // A token at the border of a filter may fall on either side by rounding.
  expect(worst < 2e-4, name + ": mass off by " + std::to_string(worst));
  expect(outcome.is_broken == 0, name + ": broken");
  std::printf("%-86s %.1e\n", name.c_str(), worst);
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

/// Chains of two drafted tokens from a draft that scores every second token: the first token must follow the target's
/// row 0, the second, where the first was accepted, its row 1.
void test_acceptance(const RoundSettings& wanted, bool trimmed) {
  constexpr int kTokens = 24, kRounds = 40000;
  const int num_draft = trimmed ? kTokens / 2 : kTokens;
  const std::vector<float> p = random_floats(3 * kTokens, 21), q = random_floats(2 * num_draft, 22);
  std::vector<int32_t> ids, logit_of_id(kTokens, -1);
  for (int i = 0; i < num_draft; ++i) ids.push_back(trimmed ? 2 * i : i), logit_of_id[ids.back()] = i;
  const DeviceArray<float> target(p), draft(q);
  const DeviceArray<int32_t> device_ids(ids), device_map(logit_of_id);
  std::vector<RoundSettings> all(kRounds, wanted);
  for (int i = 0; i < kRounds; ++i) all[i].key[0] = 1000 + i;
  const Rounds rounds(all, kTokens);
  const LogitRows rows{target.get(), 3, kTokens, kTokens};
  for (int round = 0; round < kRounds; ++round) {
    const RoundMemory memory = rounds.memory(round);
    CUDA_CHECK(launch_round_start(memory, nullptr));
    for (int step = 0; step < 2; ++step) {
      CUDA_CHECK(launch_choose_drawn(DraftStep{{draft.get() + step * num_draft, 1, num_draft, num_draft},
                                               trimmed ? device_ids.get() : nullptr,
                                               step,
                                               rounds.inputs(),
                                               rounds.target_ids()},
                                     memory, nullptr));
    }
    CUDA_CHECK(launch_choose_drawn(TargetChoice{rows, rounds.target_ids()}, memory, false, nullptr));
    CUDA_CHECK(launch_accept_drawn(
        {rows, {draft.get(), 2, num_draft, num_draft}, trimmed ? device_map.get() : nullptr, rounds.target_ids()},
        memory, nullptr));
  }
  std::vector<double> first(kTokens), second(kTokens);
  int accepted = 0;
  for (const RoundOutcome& outcome : rounds.outcomes.read()) {
    ++first[outcome.num_accepted > 0 ? outcome.drafted_ids[0] : outcome.next_id];
    if (outcome.num_accepted > 0) ++second[outcome.num_accepted > 1 ? outcome.drafted_ids[1] : outcome.next_id];
    accepted += outcome.num_accepted;
  }
  const double a = chi_square(first, oracle(p.data(), kTokens, wanted));
  const double b = chi_square(second, oracle(p.data() + kTokens, kTokens, wanted));
  const std::string name = std::string(trimmed ? "trimmed" : "full") + " draft, top-k " + std::to_string(wanted.top_k);
  std::printf("acceptance, %-28s accepted %.1f%%, chi-square %.1f and %.1f deviations\n", name.c_str(),
              50.0 * accepted / kRounds, a, b);
  expect(std::abs(a) < 4 && std::abs(b) < 4, "acceptance, " + name);
  expect(accepted > kRounds / 10, "acceptance, " + name + ": hardly any");
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

void test_broken() {
  std::vector<float> logits = random_floats(3000, 3);
  logits[2999] = std::numeric_limits<float>::quiet_NaN();
  const DeviceArray<float> device_logits(logits);
  const Rounds rounds({settings_of(1, 0, 1, 0, 1)}, 3000);
  for (const bool is_drawn : {false, true}) {
    CUDA_CHECK(launch_round_start(rounds.memory(), nullptr));
    const TargetChoice choice{{device_logits.get(), 1, 3000, 3000}, rounds.target_ids()};
    CUDA_CHECK(is_drawn ? launch_choose_drawn(choice, rounds.memory(), true, nullptr)
                        : launch_choose_likeliest(choice, rounds.memory(), nullptr));
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
        test_drawn(width, width, wanted, coarse);
      }
    }
  }
  test_draft_step();
  test_broken();
  for (const bool trimmed : {false, true}) {
    test_acceptance(settings_of(1, 0, 1, 0, 0), trimmed);
    test_acceptance(settings_of(0.8f, 10, 0.95f, 0, 0), trimmed);
  }
  std::printf(failures ? "%d FAILURES\n" : "all round kernel tests passed\n", failures);
  return failures ? 1 : 0;
}
