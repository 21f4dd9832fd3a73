// What requests draft together that share a device's rounds, in a simulated world: time is counted by the costs that
// native/cuda/NOTES.md and BENCHMARKS.md have of a 7B target with a 0.72B draft on an H200.
#include "plan/shared_drafting.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "check.h"
#include "device/chain_lengths.h"
#include "plan/controller.h"

namespace {

using namespace pilotfish;

constexpr int32_t kRows = 64, kPromptTokens = 128, kNewTokens = 128, kMostDrafted = 15;

PassCosts table(std::vector<int32_t> rows, std::vector<double> milliseconds) {
  for (double& value : milliseconds) value *= 1e-3;
  return {.rows = std::move(rows), .contexts = {32, 512}, .seconds = {milliseconds, milliseconds}};
}

RoundCosts h200_costs() {
  return {.verify = table({1, 2, 4, 8, 9, 16, 17, 32, 33, 64}, {1.53, 1.6, 1.68, 1.78, 2.2, 2.3, 2.8, 2.9, 4.0, 4.25}),
          .draft = DraftCosts{.begin = table({1, 2, 4, 8, 65, 128}, {0.34, 0.36, 0.42, 0.47, 1.1, 1.3}),
                              .level = table({1, 2, 4, 8}, {0.34, 0.36, 0.42, 0.47})},
          .head = {},
          .together = table({2, 4, 8, 16}, {1.72, 1.77, 2.02, 2.67}),
          .is_measured = true};
}

const RoundCosts kCosts = h200_costs();
constexpr DraftChoice kChoice{.plain = true,
                              .draft = true,
                              .is_auto = true,
                              .fixes_chains = true,
                              .limits = {.max_tokens = kMostDrafted, .max_depth = kMostDrafted}};

// Of a round, with no more to read than what the last one gave.
double drafting_seconds(int32_t num_requests, int32_t length, int32_t context) {
  return kCosts.verifying(num_requests, 1 + length, context) + kCosts.draft->begin.at(2 * num_requests, context) +
         (length - 1) * kCosts.draft->level.at(num_requests, context);
}

struct Totals {
  double num_tokens = 0, seconds = 0;
  int32_t num_rounds = 0, num_drafting = 0;

  double rate() const { return num_tokens / seconds; }
};

// Requests that begin and end together, whose drafts are right with probabilities of their own.
class Batch {
 public:
  Batch(const std::vector<double>& right, DraftMemory& memory, uint64_t seed) : memory_(memory), random_(seed) {
    for (const double probability : right) {
      requests_.push_back(std::make_unique<One>(probability));
      requests_.back()->controller.recall(memory);
    }
  }

  // Until all have ended, or the first has.
  enum class Until { kAll, kFirst };
  Totals run(SharedDrafting& drafting, Until until) {
    Totals totals;
    for (;;) {
      std::vector<One*> live;
      for (const auto& request : requests_) {
        if (request->num_left > 0) live.push_back(request.get());
      }
      if (live.empty() || (until == Until::kFirst && live.size() < requests_.size())) break;
      round(live, drafting, totals);
    }
    for (const auto& request : requests_) request->controller.remember(memory_);
    return totals;
  }

 private:
  struct One {
    explicit One(double probability)
        : right(probability), controller(kCosts, kChoice, kPromptTokens + kNewTokens, kPromptTokens) {}

    double right;
    Controller controller;
    int32_t num_left = kNewTokens;
    int32_t num_cached = 0;  // of the draft
    int32_t num_tokens() const { return kPromptTokens + kNewTokens - num_left; }
  };

  void round(const std::vector<One*>& live, SharedDrafting& drafting, Totals& totals) {
    const auto num_live = static_cast<int32_t>(live.size());
    PassShare share{.num_requests = num_live, .num_other_rows = num_live - 1, .chain = SharedChain{}};
    std::vector<Sharer> sharers;
    for (One* one : live) {
      const RoundState state = state_of(*one, share);
      one->controller.plan(state);
      const Sharer sharer = one->controller.sharer(state);
      if (sharer.draft) sharers.push_back(sharer);
    }
    const auto num_sharers = static_cast<int32_t>(sharers.size()), num_plain = num_live - num_sharers;
    const SharedChain chain = sharers.empty() ? SharedChain{} : drafting.plan(kCosts, sharers, num_plain, kRows);
    CHECK((chain.length + 1) * num_sharers <= kRows);
    share.chain = chain;
    share.num_requests = chain.length > 0 ? num_sharers : num_live;
    const int32_t context = live[0]->num_tokens(), num_others = chain.length > 0 ? num_plain : num_live;
    if (num_others > 0) totals.seconds += kCosts.verifying(num_others, 1, context);
    if (chain.length > 0) totals.seconds += drafting_seconds(num_sharers, chain.length, context);
    int32_t num_tokens = 0;
    for (One* one : live) {
      const bool may_draft = one->num_left > 1;
      const int32_t num_emitted = finish(*one, share, totals);
      num_tokens += may_draft ? num_emitted : 0;
    }
    if (!sharers.empty()) drafting.record(num_tokens);
    ++totals.num_rounds;
    totals.num_drafting += chain.length > 0 ? 1 : 0;
  }

  int32_t finish(One& one, const PassShare& share, Totals& totals) {
    const RoundState state = state_of(one, share);
    const int32_t num_behind = state.draft.num_behind;
    TokenTree tree;
    std::vector<int32_t> accepted;
    if (share.chain->length > 0) {
      const RoundPlan plan = one.controller.plan(state);
      for (int32_t i = 0; i < plan.num_draft; ++i) {
        tree.set_guess(tree.add(i, i - 1), {.rank = 0, .confidence = 0.6f});
        const bool is_right = std::bernoulli_distribution(one.right)(random_);
        if (is_right && static_cast<int32_t>(accepted.size()) == i) accepted.push_back(i);
      }
      if (num_behind > 2) totals.seconds += kCosts.draft->begin.at(num_behind, 0) - kCosts.draft->begin.at(1, 0);
      // The last drafted token has not been read.
      one.num_cached = one.num_tokens() + std::min(static_cast<int32_t>(accepted.size()), plan.num_draft - 1);
    }
    one.controller.record({.tree = tree.tokens(),
                           .accepted = accepted,
                           .num_caught_up = tree.size() > 0 ? num_behind : 0,
                           .level_rows = std::vector<int32_t>(std::max(tree.size() - 1, 0), 1),
                           .num_sharing = share.num_requests});
    const int32_t num_emitted = std::min(one.num_left, static_cast<int32_t>(accepted.size()) + 1);
    one.num_left -= num_emitted;
    totals.num_tokens += num_emitted;
    return num_emitted;
  }

  static RoundState state_of(const One& one, const PassShare& share) {
    const int32_t most = std::min(kMostDrafted, one.num_left - 1), num_behind = one.num_tokens() - one.num_cached;
    return {.num_tokens = one.num_tokens(),
            .most_drafted = most,
            .num_remaining = one.num_left,
            .draft = {.num_levels = most, .num_behind = num_behind, .context = one.num_cached, .is_shared = true},
            .head = {},
            .lookup = {},
            .share = share};
  }

  DraftMemory& memory_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<One>> requests_;
};

double plain_rate(int32_t num_requests) { return num_requests / kCosts.verifying(num_requests, 1, 200); }

// The best length, for drafts that are right with probabilities of which these are all.
double best_rate(const std::vector<double>& right) {
  const auto num_requests = static_cast<int32_t>(right.size());
  double best = plain_rate(num_requests);
  for (const int32_t length : kChainLengths) {
    if (length > kMostDrafted || (length + 1) * num_requests > kRows) break;
    double tokens = 0;
    for (const double probability : right) {
      double path = 1;
      for (int32_t i = 0; i <= length; ++i, path *= probability) tokens += path;
    }
    best = std::max(best, tokens / drafting_seconds(num_requests, length, 200));
  }
  return best;
}

// Batches of an engine, one after the other. A warm one has drafted for two requests.
enum class Engine { kFresh, kWarm };
Totals run_batches(const std::vector<double>& right, int num_batches, uint64_t seed, Engine engine,
                   Batch::Until until = Batch::Until::kAll) {
  DraftMemory memory;
  SharedDrafting drafting;
  if (engine == Engine::kWarm) Batch({right[0], right[0]}, memory, seed).run(drafting, Batch::Until::kAll);
  Totals sum;
  for (int i = 0; i < num_batches; ++i) {
    const Totals totals = Batch(right, memory, 100 * seed + i).run(drafting, until);
    sum.num_tokens += totals.num_tokens;
    sum.seconds += totals.seconds;
    sum.num_rounds += totals.num_rounds;
    sum.num_drafting += totals.num_drafting;
  }
  return sum;
}

void test_what_pays_is_drafted() {
  for (const int32_t count : {2, 3, 4, 8, 12, 16}) {
    for (const double right : {0.75, 0.9, 0.98}) {
      const std::vector<double> all(count, right);
      const double found = run_batches(all, 6, count, Engine::kWarm, Batch::Until::kFirst).rate();
      const double plain = plain_rate(count), best = best_rate(all);
      if (found < 0.98 * plain || found < plain + 0.45 * (best - plain)) {
        check::failed(__FILE__, __LINE__, count, " requests, ", right, " right: ", found / plain,
                      " of plain, the best ", best / plain);
      }
    }
  }
}

void test_what_does_not_pay_costs_next_to_nothing() {
  for (const int32_t count : {2, 3, 4, 8, 12, 16}) {
    for (const double right : {0.02, 0.1, 0.3}) {
      for (const Engine engine : {Engine::kFresh, Engine::kWarm}) {
        const std::vector<double> all(count, right);
        const Totals first = run_batches(all, 1, count, engine), many = run_batches(all, 6, count, engine);
        if (first.rate() < 0.98 * plain_rate(count) || many.rate() < 0.98 * plain_rate(count)) {
          check::failed(__FILE__, __LINE__, count, " requests, ", right, " right: first batch ",
                        first.rate() / plain_rate(count), " of plain, all ", many.rate() / plain_rate(count));
        }
      }
    }
  }
}

// Rows go to whoever gains by them, as long as all of them together gain.
void test_different_texts() {
  const std::vector<double> mixed{0.95, 0.95, 0.1, 0.95};
  CHECK(run_batches(mixed, 6, 1, Engine::kWarm, Batch::Until::kFirst).rate() > 1.05 * plain_rate(4));
  const std::vector<double> poor{0.1, 0.1, 0.1, 0.5, 0.1, 0.1, 0.1, 0.1};
  CHECK(run_batches(poor, 6, 2, Engine::kWarm).rate() > 0.98 * plain_rate(8));
}

Sharer sharer_of(float accepted, double catch_up_seconds = 0) {
  return {.draft = Sharer::Outlook{.accepted = accepted, .catch_up_seconds = catch_up_seconds, .most = 15},
          .head = {},
          .num_remaining = 100,
          .context = 200};
}

SharedChain plan(const std::vector<Sharer>& sharers, int32_t num_plain = 0, int32_t most_rows = kRows) {
  return SharedDrafting().plan(kCosts, sharers, num_plain, most_rows);
}

void test_plain_as_the_batch_fills() {
  CHECK(plan(std::vector(2, sharer_of(0.4f))).length > 0);
  CHECK_EQ(plan(std::vector(16, sharer_of(0.4f))).length, 0);
  const SharedChain many = plan(std::vector(16, sharer_of(0.95f)));
  CHECK(many.length > 0 && many.length <= 3);
  CHECK(plan(std::vector(2, sharer_of(0.95f))).length > many.length);
  CHECK(plan(std::vector(2, sharer_of(0.95f)), 0, 8).length <= 3);
}

// Those that draft nothing have a round of their own beside one that drafts.
void test_company_of_plain_requests() {
  const std::vector<Sharer> one{sharer_of(0.75f)};
  CHECK(plan(one).length > 0);
  CHECK_EQ(plan(one, 15).length, 0);
}

// Of 100 plain rounds that are left, one may be lost, six by what is known.
void test_what_is_to_be_read_first() {
  const double plain = kCosts.verifying(4, 1, 200);
  CHECK(plan(std::vector(4, sharer_of(0.95f, 0.2 * plain))).length > 0);
  std::vector<Sharer> sharers(4, sharer_of(0.95f, 0.4 * plain));
  CHECK_EQ(plan(sharers).length, 0);
  for (Sharer& sharer : sharers) sharer.draft->is_known = true;
  CHECK(plan(sharers).length > 0);
  std::vector<Sharer> brief(4, sharer_of(0.95f, 0.1 * plain));
  for (Sharer& sharer : brief) sharer.num_remaining = 4;
  CHECK_EQ(plan(brief).length, 0);
}

// Rounds that gained pay for what others have to read.
void test_an_account_of_all() {
  SharedDrafting drafting;
  const double plain = kCosts.verifying(4, 1, 200);
  const std::vector<Sharer> good(4, sharer_of(0.95f)), late(4, sharer_of(0.95f, plain));
  CHECK_EQ(drafting.plan(kCosts, late, 0, kRows).length, 0);
  drafting.record(4);
  for (int i = 0; i < 4; ++i) {
    const SharedChain chain = drafting.plan(kCosts, good, 0, kRows);
    CHECK(chain.length > 0);
    drafting.record(4 * (chain.length + 1));
  }
  CHECK(drafting.plan(kCosts, late, 0, kRows).length > 0);
  drafting.record(4);  // nothing was right, again and again
  for (int i = 0; i < 20 && drafting.plan(kCosts, good, 0, kRows).length > 0; ++i) drafting.record(4);
  CHECK_EQ(drafting.plan(kCosts, good, 0, kRows).length, 0);
}

void test_a_source_that_one_lacks_drafts_for_none() {
  std::vector<Sharer> sharers(3, sharer_of(0.95f));
  sharers[1].draft.reset();
  CHECK_EQ(plan(sharers).length, 0);
}

// What seemed slow is tried again now and then.
void test_probes() {
  SharedDrafting drafting;
  const std::vector<Sharer> poor(4, sharer_of(0.05f));
  int num_probes = 0;
  for (int i = 0; i < 600; ++i) {
    const SharedChain chain = drafting.plan(kCosts, poor, 0, kRows);
    CHECK(chain.length == 0 || chain.is_probe);
    num_probes += chain.length > 0 ? 1 : 0;
    drafting.record(4);
  }
  CHECK(num_probes >= 3 && num_probes <= 12);
}

}  // namespace

int main() {
  test_what_pays_is_drafted();
  test_what_does_not_pay_costs_next_to_nothing();
  test_different_texts();
  test_plain_as_the_batch_fills();
  test_company_of_plain_requests();
  test_what_is_to_be_read_first();
  test_an_account_of_all();
  test_a_source_that_one_lacks_drafts_for_none();
  test_probes();
  return check::result();
}
