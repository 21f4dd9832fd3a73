#include "sampling/token_chooser.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <new>
#include <random>
#include <tuple>
#include <vector>

#include "check.h"
#include "sampling/token_history.h"

static int64_t num_allocations = 0;

void* operator new(size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using pilotfish::Distribution;
using pilotfish::Prefix;
using pilotfish::ProcessorOptions;
using pilotfish::Sampler;
using pilotfish::SamplingOptions;
using pilotfish::SequenceLimits;
using pilotfish::TokenChooser;
using pilotfish::TokenHistory;

using Ids = std::vector<int32_t>;

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr int32_t kNumIds = 40;
constexpr int32_t kNumPrompt = 6;
constexpr int32_t kMaxTokens = 60;
constexpr SequenceLimits kLimits{kNumPrompt, kMaxTokens, kNumIds};

std::vector<float> random_logits(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kNumIds);
  for (float& x : logits) x = normal(random);
  return logits;
}

void check_history(const TokenHistory& history, const Ids& tokens, int32_t window) {
  const auto size = static_cast<int32_t>(tokens.size());
  const int32_t begin = window > 0 ? std::max(0, size - window) : 0;
  std::map<int32_t, int32_t> in_window, generated, last;
  for (int32_t i = 0; i < size; ++i) {
    last[tokens[i]] = i;
    if (i < begin) continue;
    ++in_window[tokens[i]];
    if (i >= kNumPrompt) ++generated[tokens[i]];
  }
  CHECK_EQ(history.size(), size);
  CHECK_EQ(history.entries().size(), last.size());
  for (const TokenHistory::Entry& entry : history.entries()) {
    CHECK_EQ(entry.last, last.at(entry.id));
    CHECK_EQ(entry.num_in_window, in_window[entry.id]);
    CHECK_EQ(entry.num_generated, generated[entry.id]);
  }
  for (int32_t i = 0; i < size; ++i) {
    CHECK_EQ(history[i], tokens[i]);
    const auto before = std::find(tokens.rbegin() + (size - i), tokens.rend(), tokens[i]);
    CHECK_EQ(history.previous(i), static_cast<int32_t>(tokens.rend() - before) - 1);
  }
}

void test_history_counts_what_is_there() {
  std::mt19937 random(1);
  for (const int32_t window : {0, 1, 7, 100}) {
    TokenHistory history(kNumPrompt, kMaxTokens, window);
    Ids tokens;
    for (int step = 0; step < 2000; ++step) {
      const bool pushes = tokens.empty() || (tokens.size() < kMaxTokens && random() % 5 < 3);
      if (pushes) {
        tokens.push_back(static_cast<int32_t>(random() % 12) * 4096);  // which collide
        history.push(tokens.back());
      } else {
        tokens.pop_back();
        history.pop();
      }
      check_history(history, tokens, window);
    }
  }
}

ProcessorOptions penalties() {
  return {.repetition_penalty = 1.3f,
          .presence_penalty = 0.4f,
          .frequency_penalty = 0.2f,
          .penalty_window = 9,
          .no_repeat_ngram_size = 2,
          .min_new_tokens = 12,
          .end_ids = {3, 5},
          .logit_bias = {{1, 2.0f}, {7, kBanned}}};
}

// Rows of trees, of draft and target in turn, then more tokens: each row is
// what a chooser gives that sees nothing else.
void test_a_row_depends_on_its_prefix_alone() {
  std::mt19937 random(2);
  Sampler sampler(kNumIds);
  TokenChooser chooser({}, sampler, penalties(), kLimits);
  Ids tokens;
  for (int32_t i = 0; i < kNumPrompt; ++i) tokens.push_back(static_cast<int32_t>(random() % 8));
  while (tokens.size() + 8 < kMaxTokens) {
    std::vector<Ids> paths{{}};
    for (int row = 0; row < 30; ++row) {
      Ids path = paths[random() % paths.size()];
      const std::vector<float> logits = random_logits(random());
      const std::span<const float> part(logits.data(), random() % 2 == 0 ? kNumIds : kNumIds / 2);
      const std::span<const float> found = chooser.scores(part, {tokens, path});
      Sampler fresh_sampler(kNumIds);
      TokenChooser fresh({}, fresh_sampler, penalties(), kLimits);
      const std::span<const float> expected = fresh.scores(part, {tokens, path});
      CHECK(std::ranges::equal(found, expected));
      path.push_back(static_cast<int32_t>(random() % 8));
      if (path.size() < 6) paths.push_back(path);
    }
    const Ids kept = paths[random() % paths.size()];
    tokens.insert(tokens.end(), kept.begin(), kept.end());
    tokens.push_back(static_cast<int32_t>(random() % 8));
  }
}

struct Masks {
  std::vector<Ids> asked;
  int32_t result = 0;

  // Allows what is larger than the last drafted token.
  static int32_t fill(void* user, const int32_t* path, size_t num_path, uint32_t* mask_out) {
    auto& masks = *static_cast<Masks*>(user);
    masks.asked.emplace_back(path, path + num_path);
    const int32_t last = num_path == 0 ? -1 : path[num_path - 1];
    for (int32_t id = last + 1; id < kNumIds; ++id) mask_out[id / 32] |= 1u << (id % 32);
    return masks.result;
  }
};

void test_a_mask_is_asked_for_once_a_path_and_round() {
  Masks masks;
  Sampler sampler(kNumIds);
  TokenChooser chooser({}, sampler, {.mask = Masks::fill, .mask_user = &masks}, kLimits);
  const std::vector<float> logits = random_logits(3);
  Ids tokens{1, 2, 3};
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const Ids& path : {Ids{}, Ids{4}, Ids{4, 9}, Ids{30}}) {
      const std::span<const float> scores = chooser.scores(logits, {tokens, path});
      for (int32_t id = 0; id < kNumIds; ++id) {
        CHECK_EQ(scores[id], path.empty() || id > path.back() ? logits[id] : kBanned);
      }
    }
    CHECK_EQ(masks.asked.size(), size_t{4});
  }
  tokens.push_back(4);
  CHECK_EQ(chooser.scores(std::span(logits).first(20), {tokens, {}}).size(), size_t{20});
  CHECK_EQ(masks.asked.size(), size_t{5});
  // More paths than are remembered give the right masks still.
  for (int32_t id = 0; id < kNumIds - 1; ++id) {
    for (const int32_t second : {id, id + 1}) {
      const Ids path{id, second};
      CHECK_EQ(chooser.scores(logits, {tokens, path}).empty(), second == kNumIds - 1);
    }
  }
}

void test_a_failing_mask_fails_the_row_and_is_not_remembered() {
  Masks masks{.asked = {}, .result = 7};
  Sampler sampler(kNumIds);
  TokenChooser chooser({}, sampler, {.mask = Masks::fill, .mask_user = &masks}, kLimits);
  const std::vector<float> logits = random_logits(4);
  CHECK_ERROR(PF_CALLBACK_FAILED, "the mask callback returned 7 after 0 drafted tokens",
              std::ignore = chooser.scores(logits, {}));
  masks.result = 0;
  CHECK_EQ(chooser.scores(logits, {}).size(), logits.size());
}

void test_no_token_left() {
  Sampler sampler(4);
  const ProcessorOptions options{.no_repeat_ngram_size = 1, .min_new_tokens = 3, .end_ids = {3}};
  for (const SamplingOptions& sampling :
       {SamplingOptions{}, SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 1, .top_k = 2}}) {
    TokenChooser chooser(sampling, sampler, options, {2, 10, 4});
    const std::vector<float> logits{1, 2, 3, 4};
    const Ids tokens{0, 1}, path{2};
    CHECK(!chooser.scores(logits, {tokens, {}}).empty());
    CHECK(chooser.scores(logits, {tokens, path}).empty());
    Distribution out;
    CHECK(chooser.is_greedy() || !chooser.distribution(logits, {tokens, path}, out));
    CHECK_ERROR(PF_NO_TOKEN_LEFT,
                "follow 1 new tokens: together these ban every id: "
                "no_repeat_ngram_size, min_new",
                chooser.fail_no_token(logits, {tokens, path}));
    const std::vector<float> broken(4, std::numeric_limits<float>::quiet_NaN());
    CHECK_ERROR(PF_BUNDLE_CORRUPT, "not numbers", chooser.fail_no_token(broken, {tokens, path}));
  }
}

void test_nothing_allocates_after_the_first_row() {
  ProcessorOptions options = penalties();
  options.mask = [](void*, const int32_t*, size_t, uint32_t* mask_out) {
    mask_out[0] = mask_out[1] = 0xFFFFFFFF;
    return 0;
  };
  Sampler sampler(kNumIds);
  Distribution out;
  out.reserve(kNumIds);
  Ids tokens(kMaxTokens);
  for (int32_t i = 0; i < kMaxTokens; ++i) tokens[i] = i * 7 % 31;
  const std::vector<float> logits = random_logits(6);
  for (const SamplingOptions& sampling :
       {SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 1, .typical_p = 0.9f},
        SamplingOptions{.temperature = 1, .top_k = 20, .top_p = 0.9f, .min_p = 0.01f, .typical_p = 0.9f}}) {
    TokenChooser chooser(sampling, sampler, options, kLimits);
    const int64_t before = num_allocations;
    bool is_left = true;
    for (int32_t length = kNumPrompt; length + 5 < kMaxTokens; ++length) {
      const auto sequence = std::span(tokens).first(length);
      for (int32_t depth = 0; depth < 5; ++depth) {
        is_left &= chooser.distribution(logits, {sequence, std::span(tokens).subspan(length, depth)}, out);
      }
    }
    CHECK(is_left);
    CHECK_EQ(num_allocations, before);
  }
}

void test_ends_of_text() {
  Sampler sampler(kNumIds);
  const TokenChooser chooser({}, sampler, penalties(), kLimits);
  CHECK(chooser.ends_text(3) && chooser.ends_text(5) && !chooser.ends_text(4));
}

void test_without_processors_the_row_is_not_copied() {
  Sampler sampler(kNumIds);
  TokenChooser chooser({}, sampler);
  const std::vector<float> logits = random_logits(5);
  CHECK_EQ(chooser.scores(logits, {}).data(), logits.data());
  CHECK(!chooser.ends_text(0));
}

}  // namespace

int main() {
  test_history_counts_what_is_there();
  test_a_row_depends_on_its_prefix_alone();
  test_a_mask_is_asked_for_once_a_path_and_round();
  test_a_failing_mask_fails_the_row_and_is_not_remembered();
  test_no_token_left();
  test_nothing_allocates_after_the_first_row();
  test_ends_of_text();
  test_without_processors_the_row_is_not_copied();
  return check::result();
}
