// What choosing a token from a row of 152064 logits takes on one core, option by option: microseconds, median of rows.
// Rows come in turn from a buffer that is larger than the second-level cache, as a verification leaves them.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "sampling/logprob_report.h"
#include "sampling/random_stream.h"
#include "sampling/row_math.h"
#include "sampling/token_chooser.h"

namespace {

using namespace pilotfish;

constexpr int32_t kNumIds = 152064;
constexpr int32_t kNumRows = 16;
constexpr int32_t kNumRepeats = 400;
constexpr int32_t kNumPrompt = 500;
constexpr int32_t kNumOutput = 1000;

// Like a language model's: a wide bulk, and a tail of likely tokens.
std::vector<float> make_rows() {
  std::mt19937 random(1);
  std::normal_distribution<float> bulk(0, 2.5);
  std::exponential_distribution<float> tail(0.4);
  std::vector<float> rows(size_t{kNumRows} * kNumIds);
  for (float& x : rows) x = bulk(random);
  for (int32_t row = 0; row < kNumRows; ++row) {
    for (int i = 0; i < 300; ++i) rows[size_t(row) * kNumIds + random() % kNumIds] = 8 + tail(random);
  }
  return rows;
}

std::vector<int32_t> make_tokens() {
  std::mt19937 random(2);
  std::geometric_distribution<int32_t> id(0.002);  // repeats as text does
  std::vector<int32_t> tokens(kNumPrompt + kNumOutput + kNumRepeats);
  for (int32_t& token : tokens) token = id(random) * 61 % kNumIds;
  return tokens;
}

int32_t allow_most(void*, const int32_t*, size_t, uint32_t* mask_out) {
  for (int32_t i = 0; i < kNumIds / 32; ++i) mask_out[i] = i % 7 == 0 ? 0 : 0xFFFFFFFF;
  return 0;
}

ProcessorOptions all_processors(bool masks) {
  ProcessorOptions options{.repetition_penalty = 1.1f,
                           .presence_penalty = 0.2f,
                           .frequency_penalty = 0.1f,
                           .penalty_window = 1024,
                           .no_repeat_ngram_size = 3,
                           .min_new_tokens = 1 << 20,
                           .end_ids = {2, 3},
                           .logit_bias = {},
                           .mask = masks ? allow_most : nullptr};
  for (int32_t i = 0; i < 100; ++i) options.logit_bias.push_back({i * 977, 0.5f});
  return options;
}

void measure(const char* name, const SamplingOptions& sampling, const ProcessorOptions& processors, int32_t num_top) {
  static const std::vector<float> rows = make_rows();
  static const std::vector<int32_t> tokens = make_tokens();
  Sampler sampler(kNumIds);
  TokenChooser chooser(sampling, sampler, processors, {kNumPrompt, int32_t(tokens.size()), kNumIds});
  LogprobReport report(sampler, kNumIds, std::max(num_top, 0), 1);
  Distribution distribution;
  distribution.reserve(kNumIds);
  const RandomStream random(3);
  std::vector<double> micros;
  int64_t checksum = 0;
  for (int32_t i = 0; i < kNumRepeats; ++i) {
    const std::span<const float> logits(rows.data() + size_t(i % kNumRows) * kNumIds, kNumIds);
    const Prefix prefix{std::span(tokens).first(kNumPrompt + kNumOutput + i), {}};
    const auto start = std::chrono::steady_clock::now();
    int32_t id = 0;
    if (chooser.is_greedy()) {
      id = find_peak(chooser.scores(logits, prefix)).index;
    } else if (chooser.distribution(logits, prefix, distribution)) {
      id = distribution.sample(random.uniform(i, RandomStream::Purpose::kTarget));
    }
    if (num_top >= 0) {
      report.clear();
      checksum += report.add(logits, id) < 0;
    }
    micros.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    checksum += id;
  }
  std::sort(micros.begin(), micros.end());
  std::printf("%-46s %7.1f  (fastest %.1f, slowest tenth from %.1f; check %lld)\n", name, micros[kNumRepeats / 2],
              micros[0], micros[kNumRepeats * 9 / 10], static_cast<long long>(checksum));
}

}  // namespace

int main() {
  const ProcessorOptions all = all_processors(true);
  const SamplingOptions every{.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .min_p = 0.02f, .typical_p = 0.95f};
  std::printf("%d ids, %d prompt and %d output tokens; microseconds a row\n", kNumIds, kNumPrompt, kNumOutput);
  measure("greedy", {}, {}, -1);
  measure("greedy, logprob", {}, {}, 0);
  measure("greedy, 20 top logprobs", {}, {}, 20);
  measure("greedy, all processors but the mask", {}, all_processors(false), -1);
  measure("greedy, all processors", {}, all, -1);
  measure("temperature", {.temperature = 0.8f}, {}, -1);
  measure("top_k 50", {.temperature = 0.8f, .top_k = 50}, {}, -1);
  measure("top_p 0.95", {.temperature = 0.8f, .top_p = 0.95f}, {}, -1);
  measure("min_p 0.05", {.temperature = 0.8f, .min_p = 0.05f}, {}, -1);
  measure("typical_p 0.95", {.temperature = 0.8f, .typical_p = 0.95f}, {}, -1);
  measure("top_p, min_p and typical_p, all processors",
          {.temperature = 0.8f, .top_p = 0.95f, .min_p = 0.02f, .typical_p = 0.95f}, all, -1);
  measure("everything, without logprobs", every, all, -1);
  measure("everything, with 20 top logprobs", every, all, 20);
}
