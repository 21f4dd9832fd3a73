#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "check.h"
#include "sampling/sampling_options.h"
#include "sampling_reference.h"

namespace {

using pilotfish::Distribution;
using pilotfish::Sampler;
using pilotfish::SamplingOptions;

std::vector<float> random_logits(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(size);
  for (float& x : logits) x = normal(random);
  return logits;
}

void check_against_reference(const std::vector<float>& logits, const SamplingOptions& options) {
  Sampler sampler(logits.size());
  Distribution found;
  sampler.process(logits, options, found);
  const std::map<int32_t, double> expected = sampling_reference::distribution({logits.begin(), logits.end()}, options);
  CHECK_EQ(found.probs.size(), expected.size());
  for (const auto& [id, prob] : expected) CHECK_NEAR(found.prob_of(id), prob, 1e-5 * prob + 1e-9);
  CHECK(found.is_dense || std::is_sorted(found.ids.begin(), found.ids.end()));
}

void test_filters_against_the_definition() {
  for (const size_t size : {1, 5, 64, 3000}) {
    for (unsigned seed = 0; seed < 2; ++seed) {
      const std::vector<float> logits = random_logits(size, seed);
      for (const float temperature : {0.3f, 1.7f}) {
        for (const int32_t top_k : {0, 1, 7, 900, 100000}) {
          for (const float top_p : {1.0f, 0.9f, 0.001f}) {
            for (const float min_p : {0.0f, 0.05f}) {
              for (const float typical_p : {1.0f, 0.6f}) {
                check_against_reference(logits, {temperature, top_k, top_p, min_p, typical_p});
              }
            }
          }
        }
      }
    }
  }
}

void test_tokens_that_tie_at_top_k_stay() {
  const std::vector<float> logits{1, 3, 2, 2, 0, 2};
  Distribution found;
  Sampler(logits.size()).process(logits, {.temperature = 1, .top_k = 2}, found);
  CHECK((found.ids == std::vector<int32_t>{1, 2, 3, 5}));
}

void test_top_p_prefers_the_lower_id_among_equals() {
  const std::vector<float> logits(8, 0.0f);
  Distribution found;
  Sampler(logits.size()).process(logits, {.temperature = 1, .top_p = 0.3f}, found);
  CHECK((found.ids == std::vector<int32_t>{0, 1, 2}));
}

void test_masked_tokens_are_never_drawn() {
  std::vector<float> logits(100, -std::numeric_limits<float>::infinity());
  logits[17] = -4;
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 1, .top_k = 5},
        SamplingOptions{.temperature = 1, .top_p = 0.5f}}) {
    Distribution found;
    Sampler(logits.size()).process(logits, options, found);
    for (const double u : {0.0, 0.5, 1 - 0x1p-53}) CHECK_EQ(found.sample(u), 17);
  }
}

void test_sample_inverts_the_cumulative_distribution() {
  const Distribution sparse{.is_dense = false, .ids = {3, 8, 9}, .probs = {0.25f, 0, 0.75f}};
  CHECK_EQ(sparse.sample(0), 3);
  CHECK_EQ(sparse.sample(0.2499), 3);
  CHECK_EQ(sparse.sample(0.2501), 9);
  CHECK_EQ(sparse.sample(1 - 0x1p-53), 9);
  Distribution dense{.is_dense = true, .ids = {}, .probs = std::vector<float>(1000, 0.001f)};
  for (int i = 0; i < 1000; ++i) CHECK_EQ(dense.sample((i + 0.5) / 1000), i);
  dense.probs[999] = 0;
  CHECK_EQ(dense.sample(1 - 0x1p-53), 998);
}

void test_residual() {
  Distribution dense{.is_dense = true, .ids = {}, .probs = {0.5f, 0.3f, 0.2f}};
  CHECK_NEAR(dense.subtract({.is_dense = true, .ids = {}, .probs = {0.25f, 0.5f, 0.25f}}), 0.25, 1e-7);
  CHECK((dense.probs == std::vector<float>{0.25f, 0, 0}));
  Distribution sparse{.is_dense = false, .ids = {1, 4, 6}, .probs = {0.5f, 0.25f, 0.25f}};
  CHECK_NEAR(sparse.subtract({.is_dense = false, .ids = {0, 4, 6, 9}, .probs = {0.25f, 0.25f, 0.125f, 0.375f}}), 0.625,
             1e-7);
  CHECK((sparse.probs == std::vector<float>{0.5f, 0, 0.125f}));
}

void test_find_likeliest() {
  for (const size_t size : {1, 5, 64, 3000}) {
    std::vector<float> logits = random_logits(size, 11);
    for (float& x : logits) x = std::round(2 * x);  // with ties
    std::vector<int32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    order.resize(100, -1);
    Sampler sampler(size);
    for (const size_t count : {1, 3, 40, 100}) {
      std::vector<int32_t> found(count);
      sampler.find_likeliest(logits, found);
      CHECK(std::equal(found.begin(), found.end(), order.begin()));
    }
  }
}

void test_log_prob() {
  const std::vector<float> logits = random_logits(777, 9);
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x});
  for (const int32_t id : {0, 5, 776}) CHECK_NEAR(pilotfish::LogProbs(logits)[id], logits[id] - std::log(sum), 3e-6);
}

void test_logits_that_are_not_numbers_are_refused() {
  std::vector<float> logits = random_logits(100, 1);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  Distribution out;
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 1, .top_p = 0.9f},
        SamplingOptions{.temperature = 1, .typical_p = 0.9f}}) {
    CHECK(!Sampler(100).process(logits, options, out));
  }
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "not numbers", pilotfish::LogProbs{logits});
}

// Greedy at last: what is left are the likeliest tokens.
void test_the_smallest_temperature_can_be_divided_by() {
  std::vector<float> logits = random_logits(100, 5);
  logits[41] = logits[7] = 20;
  for (SamplingOptions options : {SamplingOptions{}, SamplingOptions{.top_k = 5}, SamplingOptions{.top_p = 0.9f},
                                  SamplingOptions{.min_p = 0.1f}, SamplingOptions{.typical_p = 0.9f}}) {
    options.temperature = PF_LEAST_TEMPERATURE;
    Distribution out;
    CHECK(Sampler(100).process(logits, options, out));
    CHECK_NEAR(out.prob_of(7), 0.5, 1e-6);
    CHECK_NEAR(out.prob_of(41), 0.5, 1e-6);
  }
  pf_generate_options options{};
  options.temperature = PF_LEAST_TEMPERATURE;
  CHECK_EQ(pilotfish::sampling_options(options).temperature, PF_LEAST_TEMPERATURE);
  options.temperature = std::nextafter(PF_LEAST_TEMPERATURE, 0.0f);
  CHECK_EQ(pilotfish::sampling_options(options).temperature, 0.0f);
}

}  // namespace

int main() {
  test_filters_against_the_definition();
  test_tokens_that_tie_at_top_k_stay();
  test_top_p_prefers_the_lower_id_among_equals();
  test_masked_tokens_are_never_drawn();
  test_sample_inverts_the_cumulative_distribution();
  test_residual();
  test_find_likeliest();
  test_log_prob();
  test_logits_that_are_not_numbers_are_refused();
  test_the_smallest_temperature_can_be_divided_by();
  return check::result();
}
