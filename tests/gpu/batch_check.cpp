// Several generations of an engine on a GPU through the C API: each with the bits that it has alone, and tokens a
// second of up to 16 of them in shared rounds. A step of all takes "step" ms: "device" are the rounds, by the clock of
// the GPU where it chooses; "stages" is what the requests do on the host; "rest" starts the work, waits for its end and
// goes through the API. Steps in which a draft reads a prompt are not among them and read "prompts" ms; "start" ms is
// all before the first tokens. Usage: batch_check ORT_LIBRARY BUNDLE [--tokens N] [--drafted N] [--brief 1] [--only
// WORD]: fewer settings and numbers of generations; the settings whose name has the word
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

constexpr int kMost = PF_MOST_TOGETHER;
constexpr int kPromptTokens = 128;
constexpr int kRepeats = 3;
int failures = 0;

void check(pf_status status, const char* what) {
  if (status == PF_OK) return;
  std::printf("FAILED %s: status %d: %s\n", what, status, pf_last_error());
  std::exit(1);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Setting {
  std::string name;
  int num_drafted;
  float temperature = 0;
  bool alternates = false;  // every other one is greedy
  int source = PF_DRAFT_AUTO;
  int tree_nodes = 0;
  int num_top_logprobs = 0;  // the host chooses
};

// Where the time of steps went, in milliseconds.
struct Times {
  double step = 0, device = 0, stages = 0, rest = 0;  // of a step
  double prompts = 0, start = 0;                      // of all
};

struct Output {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  int num_rounds = 0, num_device_rounds = 0, num_drafted = 0, num_accepted = 0;
};

// Prompt i, the same whoever else generates, of 121 to 128 tokens.
std::vector<int32_t> prompt(int index, int vocabulary) {
  std::vector<int32_t> ids(kPromptTokens - index % 8);
  uint32_t state = 977u * (index + 1);
  for (int32_t& id : ids) id = static_cast<int32_t>((state = state * 1664525u + 1013904223u) >> 8) % vocabulary;
  return ids;
}

pf_engine* open(const char* ort, const char* bundle) {
  pf_engine_options options;
  pf_engine_options_init(&options);
  options.device = PF_DEVICE_CUDA;
  options.ort_library = ort;
  options.max_draft_tokens = 15;
  options.max_context = 1024;
  options.num_sequences = kMost;
  pf_engine* engine = nullptr;
  const double start = now();
  check(pf_engine_open(bundle, &options, &engine), "open");
  std::printf("== %s, opened with %d sequences in %.1f s\n", bundle, kMost, now() - start);
  return engine;
}

class Batch {
 public:
  Batch(pf_engine* engine, int vocabulary, int first, int count, int num_tokens, const Setting& setting)
      : outputs(count), tokens_(count, std::vector<pf_token>(64)), finished_(count) {
    for (int i = 0; i < count; ++i) {
      pf_generate_options options;
      pf_generate_options_init(&options);
      options.max_new_tokens = num_tokens;
      options.num_draft_tokens = setting.num_drafted;
      options.draft_source = setting.source;
      options.tree_nodes = setting.tree_nodes;
      options.tree_depth = setting.tree_nodes > 0 ? 3 : 0;
      options.num_top_logprobs = setting.num_top_logprobs;
      options.temperature = setting.alternates && (first + i) % 2 == 0 ? 0 : setting.temperature;
      options.seed = 7 + first + i;
      options.ignore_eos = 1;
      options.reuse_prefix = 0;
      const std::vector<int32_t> ids = prompt(first + i, vocabulary);
      pf_request* request = nullptr;
      check(pf_request_open(engine, ids.data(), ids.size(), &options, &request), "open a request");
      requests_.push_back(request);
    }
  }
  Batch(Batch&&) = delete;
  ~Batch() {
    for (pf_request* request : requests_) pf_request_close(request);
  }

  // Runs all to their end; tokens a second once each has its first token.
  double run() {
    const double opened = now();
    while (!std::ranges::all_of(outputs, [](const Output& output) { return !output.ids.empty(); })) step();
    times.start = 1e3 * (now() - opened);
    const size_t num_before = num_tokens();
    double seconds = 0;
    int num_steps = 0;
    std::vector<pf_stats> before = stats();
    while (std::ranges::any_of(finished_, [](bool is) { return !is; })) {
      const double start = now();
      step();
      const double took = now() - start;
      seconds += took;
      std::vector<pf_stats> after = stats();
      num_steps += split(took, before, after);
      before = std::move(after);
    }
    for (double* const each : {&times.step, &times.device, &times.stages, &times.rest}) *each /= std::max(num_steps, 1);
    for (size_t i = 0; i < requests_.size(); ++i) {
      outputs[i].num_rounds = before[i].num_rounds;
      outputs[i].num_device_rounds = before[i].num_device_rounds;
      outputs[i].num_drafted = before[i].num_drafted;
      outputs[i].num_accepted = before[i].num_accepted;
    }
    return static_cast<double>(num_tokens() - num_before) / seconds;
  }

  std::vector<Output> outputs;
  Times times;

 private:
  std::vector<pf_stats> stats() const {
    std::vector<pf_stats> all(requests_.size());
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].struct_size = sizeof all[i];
      check(pf_request_get_stats(requests_[i], &all[i]), "stats");
    }
    return all;
  }

  // Adds a step to the times; 1 if it counts, 0 if a prompt was read. Requests of one round have the same seconds.
  int split(double took, const std::vector<pf_stats>& before, const std::vector<pf_stats>& after) {
    double prompts = 0, stages = 0, device = 0;
    std::vector<double> rounds;
    for (size_t i = 0; i < after.size(); ++i) {
      prompts += after[i].prefill_seconds - before[i].prefill_seconds;
      stages += after[i].other_seconds - before[i].other_seconds;
      const double round =
          after[i].draft_seconds + after[i].verify_seconds - before[i].draft_seconds - before[i].verify_seconds;
      constexpr double kSame = 1e-8;
      if (round > 0 && std::ranges::none_of(rounds, [&](double each) { return std::abs(each - round) < kSame; })) {
        rounds.push_back(round);
        device += round;
      }
    }
    times.prompts += 1e3 * prompts;
    if (prompts > 0) return 0;
    times.step += 1e3 * took;
    times.device += 1e3 * device;
    times.stages += 1e3 * stages;
    times.rest += 1e3 * (took - device - stages);
    return 1;
  }

  size_t num_tokens() const {
    size_t sum = 0;
    for (const Output& output : outputs) sum += output.ids.size();
    return sum;
  }

  void step() {
    std::vector<pf_step> steps;
    std::vector<size_t> whose;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (finished_[i]) continue;
      pf_step step = {};
      step.request = requests_[i];
      step.tokens_out = tokens_[i].data();
      step.capacity = tokens_[i].size();
      steps.push_back(step);
      whose.push_back(i);
    }
    check(pf_step_together(steps.data(), steps.size()), "step together");
    for (size_t i = 0; i < steps.size(); ++i) {
      check(steps[i].status, steps[i].error ? steps[i].error : "a step");
      Output& output = outputs[whose[i]];
      for (size_t k = 0; k < steps[i].num_tokens; ++k) {
        output.ids.push_back(steps[i].tokens_out[k].id);
        output.logprobs.push_back(steps[i].tokens_out[k].logprob);
      }
      finished_[whose[i]] = steps[i].finish != PF_FINISH_NONE;
    }
  }

  std::vector<pf_request*> requests_;
  std::vector<std::vector<pf_token>> tokens_;
  std::vector<bool> finished_;
};

bool is_same(const Output& together, const Output& alone, int index) {
  const bool same_ids = together.ids == alone.ids;
  if (same_ids && std::memcmp(together.logprobs.data(), alone.logprobs.data(), 4 * alone.logprobs.size()) == 0) {
    return true;
  }
  size_t first = 0;
  while (first < std::min(together.ids.size(), alone.ids.size()) && together.ids[first] == alone.ids[first] &&
         together.logprobs[first] == alone.logprobs[first]) {
    ++first;
  }
  std::printf(
      "FAILED: generation %d differs at token %zu of %zu: %d (%.9g), "
      "alone %d (%.9g)\n",
      index, first, alone.ids.size(), together.ids[first], together.logprobs[first], alone.ids[first],
      alone.logprobs[first]);
  return false;
}

void check_setting(pf_engine* engine, int vocabulary, int num_tokens, const Setting& setting,
                   const std::vector<int>& counts) {
  std::vector<Output> alone;
  for (int i = 0; i < kMost; ++i) {
    Batch one(engine, vocabulary, i, 1, num_tokens, setting);
    one.run();
    alone.push_back(one.outputs[0]);
  }
  double single = 0;
  for (const int count : counts) {
    std::vector<double> speeds;
    bool same = true;
    int num_rounds = 0, num_drafted = 0, num_accepted = 0;
    Times times;
    for (int repeat = 0; repeat < kRepeats + 2; ++repeat) {  // the first two record
      Batch batch(engine, vocabulary, 0, count, num_tokens, setting);
      speeds.push_back(batch.run());
      times = batch.times;
      for (int i = 0; i < count; ++i) {
        same = same && is_same(batch.outputs[i], alone[i], i);
        num_rounds = std::max(num_rounds, batch.outputs[i].num_rounds);
        num_drafted += batch.outputs[i].num_drafted;
        num_accepted += batch.outputs[i].num_accepted;
        same =
            same && (setting.num_top_logprobs > 0 || batch.outputs[i].num_rounds == batch.outputs[i].num_device_rounds);
      }
    }
    std::sort(speeds.begin() + 2, speeds.end());
    const double speed = speeds[2 + kRepeats / 2];
    if (count == 1) single = speed;
    failures += !same;
    std::printf("%8d %6s %10d %9.1f %6.2f %7d %8.3f %8.3f %7.3f %7.3f %8.2f %7.1f %8.1f%% %5s %s\n",
                setting.num_drafted,
                setting.alternates        ? "mixed"
                : setting.temperature > 0 ? "sample"
                                          : "greedy",
                count, speed, speed / single, num_rounds, times.step, times.device, times.stages, times.rest,
                times.prompts, times.start, num_drafted > 0 ? 100.0 * num_accepted / num_drafted : 0.0,
                same ? "yes" : "NO", setting.name.c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3)
    return std::fprintf(stderr,
                        "usage: batch_check ORT_LIBRARY BUNDLE "
                        "[--tokens N] [--drafted N] [--brief 1] [--only WORD]\n"),
           2;
  int num_tokens = 128, num_drafted = 5, is_brief = 0;
  std::string only;
  for (int i = 3; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--tokens")) num_tokens = std::atoi(argv[i + 1]);
    if (!std::strcmp(argv[i], "--drafted")) num_drafted = std::atoi(argv[i + 1]);
    if (!std::strcmp(argv[i], "--brief")) is_brief = std::atoi(argv[i + 1]);
    if (!std::strcmp(argv[i], "--only")) only = argv[i + 1];
  }
  pf_engine* const engine = open(argv[1], argv[2]);
  pf_engine_info info;
  info.struct_size = sizeof info;
  check(pf_engine_get_info(engine, &info), "info");
  std::printf("%8s %6s %10s %9s %6s %7s %8s %8s %7s %7s %8s %7s %9s %5s\n", "drafted", "", "sequences", "tok/s", "of 1",
              "rounds", "step ms", "device", "stages", "rest", "prompts", "start", "accepted", "same");
  std::vector<Setting> settings = {{"plain", 0}};
  if (!is_brief) settings.insert(settings.end(), {{"plain", 0, 0.8f}, {"plain", 0, 0.8f, true}});
  if (info.has_draft || info.has_head) {
    const int source = info.has_draft ? PF_DRAFT_MODEL : PF_DRAFT_HEAD;
    settings.push_back({"chain", num_drafted});
    if (!is_brief) settings.push_back({"chain", num_drafted, 0.8f, true});
    settings.push_back({"auto", PF_AS_MANY_AS_PAY});
    settings.push_back({.name = "tree", .num_drafted = 0, .source = source, .tree_nodes = 7});
    settings.push_back({.name = "host", .num_drafted = num_drafted, .source = source, .num_top_logprobs = 1});
  }
  settings.push_back({.name = "lookup", .num_drafted = num_drafted, .source = PF_DRAFT_LOOKUP});
  std::erase_if(settings, [&](const Setting& each) { return each.name.find(only) == std::string::npos; });
  const std::vector<int> counts =
      is_brief ? std::vector<int>{1, 4, 8, 12, 16} : std::vector<int>{1, 2, 3, 4, 8, 12, 16};
  for (const Setting& setting : settings) check_setting(engine, info.vocab_size, num_tokens, setting, counts);
  check(pf_engine_get_info(engine, &info), "cache invariants");
  pf_engine_close(engine);
  std::printf(failures ? "%d FAILURES\n" : "all batch checks passed\n", failures);
  return failures ? 1 : 0;
}
