// What choosing a token from a row of logits takes on one core, option by option: microseconds, median of rows. By
// shared noise, and in turn with it by a draw from the distribution, as acceptance by rejection does. Rows come in turn
// from a buffer that is larger than the second-level cache, as a verification leaves them.

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

constexpr int32_t kVocabularies[] = {49152, 152064};
constexpr int32_t kNumRows = 16;
constexpr int32_t kNumRepeats = 400;
constexpr int32_t kNumPrompt = 500;
constexpr int32_t kNumOutput = 1000;

// Like a language model's: a wide bulk, and a tail of likely tokens.
std::vector<float> make_rows(int32_t num_ids) {
  std::mt19937 random(1);
  std::normal_distribution<float> bulk(0, 2.5);
  std::exponential_distribution<float> tail(0.4);
  std::vector<float> rows(size_t{kNumRows} * num_ids);
  for (float& x : rows) x = bulk(random);
  for (int32_t row = 0; row < kNumRows; ++row) {
    for (int i = 0; i < 300; ++i) rows[size_t(row) * num_ids + random() % num_ids] = 8 + tail(random);
  }
  return rows;
}

std::vector<int32_t> make_tokens(int32_t num_ids) {
  std::mt19937 random(2);
  std::geometric_distribution<int32_t> id(0.002);  // repeats as text does
  std::vector<int32_t> tokens(kNumPrompt + kNumOutput + kNumRepeats);
  for (int32_t& token : tokens) token = id(random) * 61 % num_ids;
  return tokens;
}

// `user` is the number of ids.
int32_t allow_most(void* user, const int32_t*, size_t, uint32_t* mask_out) {
  const int32_t num_ids = *static_cast<const int32_t*>(user);
  for (int32_t i = 0; i < num_ids / 32; ++i) mask_out[i] = i % 7 == 0 ? 0 : 0xFFFFFFFF;
  return 0;
}

ProcessorOptions all_processors(const int32_t& num_ids, bool masks) {
  ProcessorOptions options{.repetition_penalty = 1.1f,
                           .presence_penalty = 0.2f,
                           .frequency_penalty = 0.1f,
                           .penalty_window = 1024,
                           .no_repeat_ngram_size = 3,
                           .min_new_tokens = 1 << 20,
                           .end_ids = {2, 3},
                           .logit_bias = {},
                           .mask = masks ? allow_most : nullptr,
                           .mask_user = const_cast<int32_t*>(&num_ids)};
  for (int32_t i = 0; i < 100; ++i) options.logit_bias.push_back({i * 977 % num_ids, 0.5f});
  return options;
}

class Bench {
 public:
  explicit Bench(int32_t num_ids)
      : num_ids_(num_ids), rows_(make_rows(num_ids)), tokens_(make_tokens(num_ids)), sampler_(num_ids) {
    distribution_.reserve(num_ids);
  }

  ProcessorOptions processors(bool masks) const { return all_processors(num_ids_, masks); }

  // num_top: likeliest ids to report; -1: not even the token's log-probability.
  void measure(const char* name, const SamplingOptions& sampling, const ProcessorOptions& processors, int32_t num_top) {
    TokenChooser chooser(sampling, sampler_, processors, {kNumPrompt, int32_t(tokens_.size()), num_ids_});
    LogprobReport report(sampler_, num_ids_, std::max(num_top, 0), 1);
    std::vector<double> chosen, drawn;
    for (int32_t i = 0; i < kNumRepeats; ++i) {
      const std::span<const float> logits(rows_.data() + size_t(i % kNumRows) * num_ids_, num_ids_);
      const Prefix prefix{std::span(tokens_).first(kNumPrompt + kNumOutput + i), {}};
      chosen.push_back(time(report, logits, num_top, [&] { return chooser.choose(logits, prefix); }));
      if (!chooser.is_greedy())
        drawn.push_back(time(report, logits, num_top, [&] { return draw(chooser, logits, prefix); }));
    }
    print(name, chosen, drawn);
  }

 private:
  // Microseconds; the row comes from memory.
  template <typename Choose>
  double time(LogprobReport& report, std::span<const float> logits, int32_t num_top, Choose&& choose) {
    const auto start = std::chrono::steady_clock::now();
    const int32_t id = choose();
    if (num_top >= 0) {
      report.clear();
      checksum_ += report.add(logits, id) < 0;
    }
    checksum_ += id;
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }

  int32_t draw(TokenChooser& chooser, std::span<const float> logits, const Prefix& prefix) {
    if (!chooser.distribution(logits, prefix, distribution_)) return 0;
    return distribution_.sample(RandomStream(3).uniform(num_draws_++, RandomStream::Purpose::kTarget));
  }

  void print(const char* name, std::vector<double>& chosen, std::vector<double>& drawn) const {
    std::sort(chosen.begin(), chosen.end());
    std::sort(drawn.begin(), drawn.end());
    std::printf("%-46s %7.1f  (fastest %.1f)", name, chosen[kNumRepeats / 2], chosen[0]);
    if (!drawn.empty()) std::printf("  by a draw %7.1f  (fastest %.1f)", drawn[kNumRepeats / 2], drawn[0]);
    std::printf("  check %lld\n", static_cast<long long>(checksum_));
  }

  const int32_t num_ids_;
  const std::vector<float> rows_;
  const std::vector<int32_t> tokens_;
  Sampler sampler_;
  Distribution distribution_;
  int32_t num_draws_ = 0;
  int64_t checksum_ = 0;
};

void measure_all(int32_t num_ids) {
  Bench bench(num_ids);
  const ProcessorOptions all = bench.processors(true);
  const SamplingOptions every{.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .min_p = 0.02f, .typical_p = 0.95f};
  std::printf("%d ids, %d prompt and %d output tokens; microseconds a row\n", num_ids, kNumPrompt, kNumOutput);
  bench.measure("greedy", {}, {}, -1);
  bench.measure("greedy, logprob", {}, {}, 0);
  bench.measure("greedy, 20 top logprobs", {}, {}, 20);
  bench.measure("greedy, all processors but the mask", {}, bench.processors(false), -1);
  bench.measure("greedy, all processors", {}, all, -1);
  bench.measure("temperature 0.8", {.temperature = 0.8f}, {}, -1);
  bench.measure("temperature 1.5", {.temperature = 1.5f}, {}, -1);
  bench.measure("temperature 100", {.temperature = 100}, {}, -1);
  bench.measure("top_k 50", {.temperature = 0.8f, .top_k = 50}, {}, -1);
  bench.measure("top_p 0.95", {.temperature = 0.8f, .top_p = 0.95f}, {}, -1);
  bench.measure("min_p 0.05", {.temperature = 0.8f, .min_p = 0.05f}, {}, -1);
  bench.measure("typical_p 0.95", {.temperature = 0.8f, .typical_p = 0.95f}, {}, -1);
  bench.measure("top_p, min_p and typical_p, all processors",
                {.temperature = 0.8f, .top_p = 0.95f, .min_p = 0.02f, .typical_p = 0.95f}, all, -1);
  bench.measure("everything, without logprobs", every, all, -1);
  bench.measure("everything, with 20 top logprobs", every, all, 20);
}

}  // namespace

int main() {
  for (const int32_t num_ids : kVocabularies) measure_all(num_ids);
}
