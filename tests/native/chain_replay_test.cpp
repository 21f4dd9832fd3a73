// `auto` on a GPU replayed away from it: chains of the EAGLE-3 head of samples/smollm2-eagle3 on texts of its target,
// with what passes take on an H200 (native/cuda/NOTES.md: 2374 tokens a second plain, 3 and 5 rows at 1.34 and 1.63 of
// that, a head's first pass 91 us, a further one 36).
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "plan/controller.h"

namespace {

using namespace pilotfish;

// Of each position of a greedy answer, how many tokens of a chain of 7 that is drafted there are right; measured on a
// CPU. A position that follows another's right tokens is as near to the same wrong one.
const std::vector<std::string> kCode{"077777777777777777764322101020001000276776543311021023210101010100705432",
                                     "077777777776543210010101010010101077076543210540210210100260432100053213",
                                     "077777777777777765432100021010100210654321032121270043210210100705732103"};
const std::vector<std::string> kTranslation{"021001103211077777777777777777777777777777777777777777777777777777777777",
                                            "043210000101010003010000001000321107772777654321032100210212100654321032",
                                            "012132105432103210107654321177107765432103210777776543210043210021030100"};
const std::vector<std::string> kChat{"000002104154021076076413210000106543210332100650526240010100000001043210",
                                     "042100777650324321021043210200101001651332101000054321102105432130010043",
                                     "014054723217777661321003100732321432002000210100210003210001000543211000"};

constexpr int32_t kPromptTokens = 80, kMostDrafted = 15;

PassCosts table(std::vector<int32_t> rows, std::vector<double> milliseconds) {
  for (double& value : milliseconds) value *= 1e-3;
  return {.rows = std::move(rows), .contexts = {32, 512}, .seconds = {milliseconds, milliseconds}};
}

const RoundCosts kCosts{
    .verify = table({1, 2, 3, 4, 5, 6, 8, 9, 12, 16}, {0.36, 0.42, 0.48, 0.53, 0.59, 0.6, 0.64, 0.83, 0.86, 0.94}),
    .draft = {},
    .head = DraftCosts{.begin = table({1, 2, 4, 8, 65, 128}, {0.091, 0.092, 0.095, 0.1, 0.3, 0.45}),
                       .level = table({1, 2, 4, 8}, {0.036, 0.037, 0.038, 0.04})},
    .is_measured = true};
constexpr DraftChoice kChoice{.plain = true,
                              .head = true,
                              .is_auto = true,
                              .fixes_chains = true,
                              .limits = {.max_tokens = kMostDrafted, .max_depth = kMostDrafted}};

struct Totals {
  double num_tokens = 0, seconds = 0;

  // Of plain decoding's speed.
  double speed() const { return num_tokens * kCosts.verify.at(1, kPromptTokens) / seconds; }
};

void add(Totals& sum, const Totals& other) {
  sum.num_tokens += other.num_tokens;
  sum.seconds += other.seconds;
}

int32_t num_right(std::string_view text, size_t position) { return text[position] - '0'; }

// A request of one engine: the account and what is known of the head go from one to the next.
Totals run_auto(std::string_view text, DraftMemory& memory) {
  const auto num_tokens = static_cast<int32_t>(text.size());
  Controller controller(kCosts, kChoice, num_tokens, kPromptTokens);
  controller.recall(memory);
  Totals totals;
  int32_t num_unread = 40;
  for (int32_t position = 1; position < num_tokens;) {
    const int32_t num_left = num_tokens - position, most = std::min(kMostDrafted, num_left - 1);
    const int32_t num_before = kPromptTokens + position;
    const Reach reach{.num_levels = most, .num_behind = num_unread, .context = num_before - num_unread};
    const RoundPlan plan = controller.plan({.num_tokens = num_before,
                                            .most_drafted = most,
                                            .num_remaining = num_left,
                                            .draft = {},
                                            .head = reach,
                                            .lookup = {}});
    TokenTree chain;
    std::vector<int32_t> accepted, level_rows;
    for (int32_t i = 0; i < plan.num_draft; ++i) {
      chain.set_guess(chain.add(i, i - 1, 0.6f, Source::kHead), {.rank = 0, .confidence = 0.6f});
      if (i > 0) level_rows.push_back(1);
      if (i < num_right(text, position)) accepted.push_back(i);
    }
    const bool has_drafted = plan.num_draft > 0;
    totals.seconds += controller.record({.tree = chain.tokens(),
                                         .accepted = accepted,
                                         .num_caught_up = has_drafted ? num_unread : 0,
                                         .level_rows = level_rows});
    const auto num_emitted = static_cast<int32_t>(accepted.size()) + 1;
    num_unread = has_drafted ? num_emitted : std::min(num_unread + 1, 64);
    totals.num_tokens += num_emitted;
    position += num_emitted;
  }
  controller.remember(memory);
  return totals;
}

Totals run_auto(const std::vector<std::string>& texts, DraftMemory& memory) {
  Totals sum;
  for (const std::string& text : texts) add(sum, run_auto(text, memory));
  return sum;
}

double chain_speed(const std::vector<std::string>& texts, int32_t length) {
  Totals totals;
  for (const std::string& text : texts) {
    for (size_t position = 1; position < text.size();) {
      const int32_t num_drafted = std::min(length, static_cast<int32_t>(text.size() - position) - 1);
      const int32_t num_emitted = std::min(num_drafted, num_right(text, position)) + 1;
      const double drafting = num_drafted > 0 ? kCosts.head->drafting(1, num_drafted, 1, kPromptTokens) : 0;
      add(totals, {static_cast<double>(num_emitted), kCosts.verify.at(1 + num_drafted, kPromptTokens) + drafting});
      position += num_emitted;
    }
  }
  return totals.speed();
}

double best_chain_speed(const std::vector<std::string>& texts) {
  double best = 1;
  for (const int32_t length : {1, 2, 3, 4, 5, 7}) best = std::max(best, chain_speed(texts, length));
  return best;
}

std::vector<std::string> repeated(const std::vector<std::string>& texts, int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.insert(all.end(), texts.begin(), texts.end());
  return all;
}

void check_speed(const char* what, double found, double least) {
  if (found < least) check::failed(__FILE__, __LINE__, what, ": ", found, " of plain, at least ", least, " wanted");
}

void test_each_kind_alone() {
  for (const auto* texts : {&kCode, &kTranslation, &kChat}) {
    DraftMemory memory;
    const double found = run_auto(repeated(*texts, 4), memory).speed();
    check_speed("texts of one kind", found, std::max(0.9 * best_chain_speed(*texts), 0.98));
  }
}

// As they came on the GPU: texts that are easy to foresee, then chat.
void test_chat_after_easier_texts() {
  DraftMemory memory;
  run_auto(kCode, memory);
  run_auto(kTranslation, memory);
  check_speed("chat after others", run_auto(repeated(kChat, 2), memory).speed(), 0.975 * chain_speed(kChat, 3));
}

// What nothing could be drafted for makes the head idle. It is found out again within a few hundred tokens.
void test_chat_after_hopeless_texts() {
  DraftMemory memory;
  run_auto(kCode, memory);
  run_auto(std::vector<std::string>(6, std::string(96, '0')), memory);
  const double first = run_auto(repeated(kChat, 3), memory).speed();
  const double then = run_auto(repeated(kChat, 3), memory).speed();
  check_speed("chat, at first", first, 1.05);
  check_speed("chat, later", then, 0.975 * chain_speed(kChat, 3));
}

void test_nothing_pays() {
  DraftMemory memory;
  check_speed("hopeless texts", run_auto(std::vector<std::string>(12, std::string(96, '0')), memory).speed(), 0.985);
  std::string rare(960, '0');
  for (size_t i = 5; i < rare.size(); i += 10) rare[i] = '1';
  check_speed("one token of ten", run_auto(rare, memory).speed(), 0.985);
}

}  // namespace

int main() {
  test_each_kind_alone();
  test_chat_after_easier_texts();
  test_chat_after_hopeless_texts();
  test_nothing_pays();
  return check::result();
}
