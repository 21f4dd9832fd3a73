// The engine on a GPU through the C API: logits against the CPU engine, greedy output with speculation against plain,
// rounds on the device against those of the host, times of passes, tokens a second.
// Usage: engine_check ORT_LIBRARY BUNDLE [--no-cpu] [--no-passes] [--tokens N]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "pilotfish.h"

namespace {

// Relative norm of logits: the CPU rounds activations to 8 bits, the GPU to f16. 22 random layers come to 0.052, a
// trained draft of 19M parameters to 0.078.
constexpr double kTolerance = 0.1;
constexpr float kLogprobTolerance = 2e-4f;  // sums in another order
int failures = 0;

void check(pf_status status, const char* what) {
  if (status == PF_OK) return;
  std::printf("FAILED %s: status %d: %s\n", what, status, pf_last_error());
  std::exit(1);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

pf_engine* open(const char* ort, const char* bundle, pf_device device) {
  pf_engine_options options;
  pf_engine_options_init(&options);
  options.device = device;
  options.ort_library = ort;
  options.max_draft_tokens = 63;
  options.prefill_chunk = 512;
  options.max_context = 3072;
  pf_engine* engine = nullptr;
  const double start = now();
  check(pf_engine_open(bundle, &options, &engine), device == PF_DEVICE_CUDA ? "open cuda" : "open cpu");
  std::printf("opened on %s in %.1f s\n", device == PF_DEVICE_CUDA ? "cuda" : "cpu", now() - start);
  std::fflush(stdout);
  return engine;
}

std::vector<int32_t> prompt(int count, int vocabulary) {
  std::vector<int32_t> ids(count);
  uint32_t state = 12345;
  for (int32_t& id : ids) id = static_cast<int32_t>((state = state * 1664525u + 1013904223u) >> 8) % vocabulary;
  return ids;
}

void compare_logits(pf_engine* cpu, pf_engine* cuda, pf_model model, const pf_engine_info& info) {
  const int count = 80;
  const std::vector<int32_t> ids = prompt(count, info.vocab_size);
  const size_t width = info.vocab_size;
  std::vector<float> expected(count * width), found(count * width);
  check(pf_engine_logits(cpu, model, ids.data(), count, expected.data()), "logits on the cpu");
  check(pf_engine_logits(cuda, model, ids.data(), count, found.data()), "logits on cuda");
  double worst = 0;
  int agree = 0;
  for (int row = 0; row < count; ++row) {
    const float *a = &expected[row * width], *b = &found[row * width];
    double error = 0, size = 0;
    for (size_t i = 0; i < width; ++i) {
      if (std::isinf(a[i]) && a[i] == b[i]) continue;
      error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
      size += double(a[i]) * a[i];
    }
    const double relative = std::sqrt(error / size);
    if (!(relative <= worst)) worst = relative;
    agree += std::max_element(a, a + width) - a == std::max_element(b, b + width) - b;
  }
  const bool ok = worst <= kTolerance;
  failures += !ok;
  std::printf("%s logits against the cpu: worst row %.2e, same first choice %d of %d%s\n",
              model == PF_MODEL_TARGET ? "target" : "draft", worst, agree, count, ok ? "" : "  FAILED");
}

struct Output {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  pf_stats stats;
  double seconds;
};

enum class Rounds { kOnDevice, kOnHost };

Output generate(pf_engine* engine, const std::vector<int32_t>& ids, int num_tokens, int num_draft, float temperature,
                Rounds rounds = Rounds::kOnDevice) {
  pf_generate_options options;
  pf_generate_options_init(&options);
  if (rounds == Rounds::kOnHost) options.num_top_logprobs = 1;  // which need the logits
  options.max_new_tokens = num_tokens;
  options.num_draft_tokens = num_draft;
  options.temperature = temperature;
  options.seed = 7;
  options.ignore_eos = 1;
  pf_request* request = nullptr;
  check(pf_request_open(engine, ids.data(), ids.size(), &options, &request), "open a request");
  Output output = {};
  std::vector<pf_token> tokens(128);
  pf_finish finish = PF_FINISH_NONE;
  double start = 0;
  while (finish == PF_FINISH_NONE) {
    size_t count = 0;
    check(pf_request_step(request, tokens.data(), tokens.size(), &count, &finish), "step");
    if (start == 0) start = now();  // after the prefill
    for (size_t i = 0; i < count; ++i) {
      output.ids.push_back(tokens[i].id);
      output.logprobs.push_back(tokens[i].logprob);
    }
  }
  output.seconds = now() - start;
  output.stats.struct_size = sizeof output.stats;
  check(pf_request_get_stats(request, &output.stats), "stats");
  pf_request_close(request);
  return output;
}

// Whether the ids are those of plain decoding on the host, and the log-probabilities nearly so.
bool is_same(const Output& output, const Output& plain) {
  if (output.ids != plain.ids) {
    size_t first = 0;
    while (first + 1 < output.ids.size() && output.ids[first] == plain.ids[first]) ++first;
    std::printf("FAILED: differs from plain at token %zu of %zu: %d, plain %d\n", first, plain.ids.size(),
                output.ids[first], plain.ids[first]);
    return false;
  }
  for (size_t i = 0; i < plain.ids.size(); ++i) {
    const float difference = std::abs(output.logprobs[i] - plain.logprobs[i]);
    if (difference <= kLogprobTolerance * (1 + std::abs(plain.logprobs[i]))) continue;
    std::printf("FAILED: logprob of token %zu is %g, on the host %g\n", i, output.logprobs[i], plain.logprobs[i]);
    return false;
  }
  return true;
}

void report(const char* where, int drafted, const Output& output, bool same) {
  const pf_stats& s = output.stats;
  const double rounds = std::max(1, s.num_rounds);
  std::printf("%6s %8d %8.1f %9.1f%% %7d %7d %8.3f %9.3f %8.3f %6.1f%% %5s\n", where, drafted,
              (output.ids.size() - 1) / output.seconds, s.num_drafted ? 100.0 * s.num_accepted / s.num_drafted : 0.0,
              s.num_rounds, s.num_device_rounds, 1e3 * s.draft_seconds / rounds, 1e3 * s.verify_seconds / rounds,
              1e3 * s.other_seconds / rounds, 100 * s.other_seconds / output.seconds, same ? "yes" : "NO");
  std::fflush(stdout);
}

void check_generation(pf_engine* engine, const pf_engine_info& info, int num_tokens) {
  // On the device the draft's and the target's times are the device's own, and "other" is all that the host adds.
  std::printf("%6s %8s %8s %10s %7s %7s %8s %9s %8s %7s %5s\n", "rounds", "drafted", "tok/s", "accepted", "number",
              "device", "draft ms", "verify ms", "other ms", "other", "same");
  const std::vector<int32_t> ids = prompt(100, info.vocab_size);
  const auto warm = [&](int drafted, float temperature, Rounds rounds) {
    generate(engine, ids, num_tokens, drafted, temperature, rounds);  // shapes are recorded
    return generate(engine, ids, num_tokens, drafted, temperature, rounds);
  };
  Output plain;
  for (const Rounds rounds : {Rounds::kOnHost, Rounds::kOnDevice}) {
    for (const int drafted : {0, 1, 2, 3, 4, 5, 7, 8, 11, 15, 16, 23}) {
      if (drafted > 0 && !info.has_draft) break;
      if (rounds == Rounds::kOnHost && drafted % 8 != 0) continue;
      const Output output = warm(drafted, 0, rounds);
      if (plain.ids.empty()) plain = output;
      bool same = is_same(output, plain);
      if (rounds == Rounds::kOnDevice && output.stats.num_device_rounds != output.stats.num_rounds) {
        std::printf("FAILED: %d of %d rounds on the device\n", output.stats.num_device_rounds, output.stats.num_rounds);
        same = false;
      }
      failures += !same;
      report(rounds == Rounds::kOnHost ? "host" : "device", drafted, output, same);
    }
  }
  // As many as pay, by the costs that were measured when the engine was opened.
  if (info.has_draft) {
    const Output output = warm(PF_AS_MANY_AS_PAY, 0, Rounds::kOnDevice);
    const bool same = is_same(output, plain);
    failures += !same;
    report("auto", -1, output, same);
  }
  Output plain_sample;
  for (const int drafted : {0, 4}) {
    if (drafted > 0 && !info.has_draft) break;
    const Output sampled = warm(drafted, 0.8f, Rounds::kOnDevice);
    const Output again = generate(engine, ids, num_tokens, drafted, 0.8f);
    if (drafted == 0) plain_sample = sampled;
    const bool same = sampled.ids == again.ids && sampled.ids == plain_sample.ids;
    failures += !same;
    report("sample", drafted, sampled, same);
    if (!same) std::printf("FAILED: a seed does not repeat its tokens, or not plain decoding's\n");
  }
}

double median_ms(pf_engine* engine, pf_model model, int rows, int context) {
  std::vector<double> seconds(24);
  check(pf_engine_time_pass(engine, model, rows, context, static_cast<int32_t>(seconds.size()), seconds.data()),
        "time a pass");
  std::sort(seconds.begin() + 4, seconds.end());  // the first ones record the shape
  return 1e3 * seconds[4 + (seconds.size() - 4) / 2];
}

void time_passes(pf_engine* engine, pf_model model) {
  const char* name = model == PF_MODEL_TARGET ? "target" : "draft";
  std::printf("%s passes, ms (relative to 1 row):\n", name);
  const double single = median_ms(engine, model, 1, 64);
  for (const int rows : {1, 2, 4, 8, 16, 32, 64}) {
    const double ms = median_ms(engine, model, rows, 64);
    std::printf("  %2d rows %8.3f (%.2f)\n", rows, ms, ms / single);
  }
  for (const int context : {512, 2048}) {
    const double ms = median_ms(engine, model, 1, context);
    std::printf("  1 row after %d tokens %8.3f (%.2f)\n", context, ms, ms / single);
  }
  const double prefill = median_ms(engine, model, 512, 0);
  std::printf("  512 rows %8.3f: %.0f tokens/s\n", prefill, 512e3 / prefill);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3)
    return std::fprintf(stderr, "usage: engine_check ORT_LIBRARY BUNDLE [--no-cpu] [--no-passes] [--tokens N]\n"), 2;
  bool with_cpu = true, with_passes = true;
  int num_tokens = 128;
  for (int i = 3; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--no-cpu")) with_cpu = false;
    if (!std::strcmp(argv[i], "--no-passes")) with_passes = false;
    if (!std::strcmp(argv[i], "--tokens") && i + 1 < argc) num_tokens = std::atoi(argv[++i]);
  }
  std::printf("== %s\n", argv[2]);
  pf_engine* cuda = open(argv[1], argv[2], PF_DEVICE_CUDA);
  pf_engine_info info;
  info.struct_size = sizeof info;
  check(pf_engine_get_info(cuda, &info), "info");
  if (with_cpu) {
    pf_engine* cpu = open(argv[1], argv[2], PF_DEVICE_CPU);
    compare_logits(cpu, cuda, PF_MODEL_TARGET, info);
    if (info.has_draft) compare_logits(cpu, cuda, PF_MODEL_DRAFT, info);
    pf_engine_close(cpu);
  }
  check_generation(cuda, info, num_tokens);
  if (with_passes) time_passes(cuda, PF_MODEL_TARGET);
  if (with_passes && info.has_draft) time_passes(cuda, PF_MODEL_DRAFT);
  check(pf_engine_get_info(cuda, &info), "cache invariants");
  pf_engine_close(cuda);
  std::printf(failures ? "%d FAILURES\n" : "all engine checks passed\n", failures);
  return failures ? 1 : 0;
}
