// The controller in a simulated world: it finds the fastest way of drafting,
// and loses next to nothing where there is none. Time is counted by the costs
// that the controller knows too, so that nothing here depends on the machine.
#include "plan/controller.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "check.h"
#include "controller_simulation.h"
#include "device/chain_lengths.h"

namespace {

using namespace simulation;

// Tokens a plain round, on average over seeds.
double speed(const RoundCosts& costs, const Setting& setting, const Profile& profile, int64_t num_tokens) {
  double sum = 0;
  for (int seed = 0; seed < kSeeds; ++seed) sum += World(costs, setting, seed).run(profile, num_tokens).rate();
  return sum / kSeeds;
}

double best_fixed_speed(const RoundCosts& costs, const Profile& profile, int64_t num_tokens) {
  double best = 1 / costs.verify.at(1, 64);
  for (int32_t num_drafted = 1; num_drafted <= 8; ++num_drafted) {
    best = std::max(best, speed(costs, {by_draft(num_drafted)}, profile, num_tokens));
    best = std::max(best, speed(costs, {by_both(num_drafted)}, profile, num_tokens));
    best = std::max(best, speed(costs, {by_lookup(num_drafted)}, profile, num_tokens));
  }
  for (const int32_t tree_tokens : {3, 5, 7, 11, 15}) {
    const Setting tree{by_draft(TokenTree::kMaxTokens), tree_tokens, std::min(tree_tokens, 6)};
    best = std::max(best, speed(costs, tree, profile, num_tokens));
  }
  return best;
}

void check_profile(const RoundCosts& costs, const Profile& profile, double least_of_best) {
  constexpr int64_t kNumTokens = 400;
  const double found = speed(costs, kAuto, profile, kNumTokens);
  const double best = best_fixed_speed(costs, profile, kNumTokens);
  if (found < 0.98 || found < least_of_best * best) {
    check::failed(__FILE__, __LINE__, "acceptance ", profile.accepted, ", confidence ", profile.confidence, ", copied ",
                  profile.copied, ": ", found, " of plain, the best fixed setting reaches ", best);
  }
}

// A draft of a thirtieth of the target, and one of a seventh; verification of a
// CPU, and of a GPU.
void test_near_the_best_setting_and_never_far_below_plain() {
  for (const double draft_step : {0.03, 0.15}) {
    for (const bool flat : {false, true}) {
      const RoundCosts costs = simulation::costs(draft_step, flat);
      for (const double accepted : {0.02, 0.1, 0.3, 0.5, 0.7, 0.9}) {
        for (const double copied : {0.0, 0.05}) {
          // Next to where drafting breaks even there is little to gain, and
          // noise decides.
          const double least = accepted < 0.4 ? 0.9 : 0.93;
          check_profile(costs, {accepted, accepted, copied, 20}, least);
        }
      }
    }
  }
}

// Where a device makes rounds by itself, the draft's chains have a length that
// is fixed before.
void test_chains_of_a_fixed_length_are_near_the_best_one() {
  constexpr int64_t kNumTokens = 400;
  DraftChoice choice = kAutoChoice;
  choice.fixes_chains = true;
  choice.lookup = false;
  for (const double draft_step : {0.05, 0.15}) {
    const RoundCosts costs = simulation::costs(draft_step, true);
    for (const double accepted : {0.05, 0.3, 0.6, 0.9, 0.98}) {
      const Profile profile{accepted, accepted, 0, 0};
      double best = 1;
      for (const int32_t length : {1, 2, 3, 4, 6, 8, 12}) {
        best = std::max(best, speed(costs, {by_draft(length)}, profile, kNumTokens));
      }
      const double found = speed(costs, {choice}, profile, kNumTokens);
      if (found < 0.98 || found < 0.9 * best) {
        check::failed(__FILE__, __LINE__, "chains, a draft step of ", draft_step, ", acceptance ", accepted, ": ",
                      found, " of plain, the best length reaches ", best);
      }
    }
  }
}

// Of a draft that is always right, where a further row costs nothing: the
// longest chain of those that are recorded when a bundle is loaded, no longer
// one.
void test_no_chain_is_planned_that_was_not_recorded() {
  const auto flat = [](double seconds) {
    return PassCosts{.rows = {1}, .contexts = {0, 1024}, .seconds = {{{seconds}, {seconds}}}};
  };
  const RoundCosts costs{.verify = flat(1), .draft = DraftCosts{.begin = flat(0.01), .level = flat(0.01)}, .head = {}};
  const DraftChoice choice{.plain = true, .draft = true, .is_auto = true, .fixes_chains = true};
  Controller controller(costs, choice, 4000, 100);
  std::array<int32_t, 63> accepted;
  std::iota(accepted.begin(), accepted.end(), 0);
  int32_t longest = 0;
  for (int i = 0; i < 200; ++i) {
    const RoundPlan plan = controller.plan({.num_tokens = 100 + i,
                                            .most_drafted = 63,
                                            .num_remaining = 4000,
                                            .draft = {.num_levels = 63},
                                            .head = {},
                                            .lookup = {}});
    TokenTree chain;
    for (int32_t k = 0; k < plan.num_draft; ++k) chain.set_guess(chain.add(k, k - 1), {.rank = 0, .confidence = 1});
    controller.record({.tree = chain.tokens(),
                       .accepted = std::span(accepted).first(plan.num_draft),
                       .num_caught_up = 1,
                       .level_rows = {}});
    longest = std::max(longest, plan.num_draft);
  }
  CHECK_EQ(longest, pilotfish::recorded_lengths(63).back());
}

// The acceptance rates: long drafts at 98 %, plain decoding at 5 %.
void test_a_gpu_where_verification_is_flat() {
  const RoundCosts costs = gpu_costs();
  for (const double accepted : {0.98, 0.75, 0.32, 0.05}) {
    const Profile profile{accepted, accepted, 0, 0};
    const double plain = 1 / costs.verify.at(1, 64);
    const double found = speed(costs, kAuto, profile, 400);
    const double best = std::max(plain, best_fixed_speed(costs, profile, 400));
    if (found < 0.98 * plain || found < 0.95 * best) {
      check::failed(__FILE__, __LINE__, "acceptance ", accepted, ": ", found / plain, " of plain, the best setting ",
                    best / plain);
    }
  }
  // Where the device drafts by itself, the lengths of its chains are chosen
  // before.
  DraftChoice by_device = kAutoChoice;
  by_device.fixes_chains = true;
  CHECK(speed(costs, {by_device}, {0.98, 0.98, 0, 0}, 400) > 1.9 / costs.verify.at(1, 64));
  CHECK(speed(costs, {by_device}, {0.05, 0.05, 0, 0}, 400) > 0.98 / costs.verify.at(1, 64));
  const Totals good = World(costs, kAuto, 1).run({0.98, 0.98, 0, 0}, 400);
  CHECK(good.num_verified > 6 * good.num_rounds);
  const Totals bad = World(costs, kAuto, 1).run({0.05, 0.05, 0, 0}, 400);
  CHECK(bad.num_draft_rounds < bad.num_rounds / 15);
}

// A draft that does not know how good it is: too sure of itself, or not sure
// enough.
void test_confidence_is_only_a_hint() {
  const RoundCosts costs = simulation::costs(0.03);
  check_profile(costs, {0.05, 0.6, 0, 0}, 0.9);
  check_profile(costs, {0.2, 0.6, 0, 0}, 0.88);
  check_profile(costs, {0.9, 0.6, 0, 0}, 0.88);
  check_profile(simulation::costs(0.03, true), {0.98, 0.02, 0, 0}, 0.5);
}

void test_a_hopeless_draft_of_any_cost_is_left_alone() {
  for (const double draft_step : {0.03, 0.15, 0.5, 1.0}) {
    const RoundCosts costs = simulation::costs(draft_step);
    for (const double confidence : {0.02, 0.6}) {
      for (int seed = 0; seed < kSeeds; ++seed) {
        CHECK(World(costs, kAuto, seed).run({0.02, confidence, 0, 0}, 400).rate() > 0.98);
      }
    }
  }
}

// The text changes: the draft is dropped within a few rounds, and found again
// by probes.
void test_follows_the_text() {
  const RoundCosts costs = simulation::costs(0.03);
  for (int seed = 0; seed < kSeeds; ++seed) {
    World world(costs, kAuto, seed);
    CHECK(world.run({0.8, 0.8, 0, 0}, 500).rate() > 2);
    world.run({0.02, 0.6, 0, 0}, 60);
    const Totals bad = world.run({0.02, 0.6, 0, 0}, 800);
    CHECK(bad.rate() > 0.98);
    CHECK(bad.num_draft_rounds < bad.num_rounds / 10);
    world.run({0.8, 0.8, 0, 0}, 900);
    CHECK(world.run({0.8, 0.8, 0, 0}, 500).rate() > 2);
  }
}

// Near the point where drafting breaks even it does not switch to and fro with
// every round, but for a probe now and then.
void test_hysteresis() {
  const RoundCosts costs = simulation::costs(0.03);
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Totals totals = World(costs, kAuto, seed).run({0.12, 0.12, 0, 0}, 2000);
    CHECK(totals.num_switches < totals.num_rounds / 10);
    CHECK(totals.rate() > 0.985);
  }
}

RoundState state(std::span<const TreeToken> lookup = {}) {
  return {.num_tokens = 100,
          .most_drafted = 8,
          .num_remaining = 100,
          .draft = {.num_levels = 8, .num_behind = 1},
          .head = {},
          .lookup = lookup};
}

void test_pinned_choices() {
  const RoundCosts costs = simulation::costs(0.03);
  TokenTree found;
  for (int32_t i = 0; i < 3; ++i) found.add(i, i - 1, 0.5f, Source::kLookup);
  const RoundPlan model = Controller(costs, by_draft(4), 100, 100).plan(state(found.tokens()));
  CHECK(model.num_draft == 4 && model.num_lookup == 0 && model.reason == RoundPlan::Reason::kPinned);
  CHECK_EQ(model.num_levels, 4);
  const RoundPlan both = Controller(costs, by_both(4), 100, 100).plan(state(found.tokens()));
  CHECK(both.num_lookup == 3 && both.num_draft == 1);
  const RoundPlan lookup = Controller(costs, by_lookup(2), 100, 100).plan(state(found.tokens()));
  CHECK(lookup.num_lookup == 2 && lookup.num_draft == 0);
  CHECK_NEAR(lookup.tokens, 1.75, 1e-6);
  // A source that is named drafts even where plain decoding would be faster,
  // but how much is up to the controller.
  TokenTree unlikely;
  unlikely.add(1, TokenTree::kRoot, 0.01f, Source::kLookup);
  CHECK_EQ(Controller(costs, {.lookup = true, .is_auto = true}, 100, 100).plan(state(unlikely.tokens())).num_lookup, 1);
  CHECK_EQ(Controller(costs, {.plain = true, .lookup = true, .is_auto = true}, 100, 100)
               .plan(state(unlikely.tokens()))
               .num_lookup,
           0);
  CHECK(Controller(simulation::costs(2), {.draft = true, .is_auto = true}, 100, 100).plan(state()).num_draft > 0);
}

void test_rounds_without_room() {
  const RoundCosts costs = simulation::costs(0.03);
  TokenTree found;
  found.add(1, TokenTree::kRoot, 0.9f, Source::kLookup);
  RoundState full = state(found.tokens());
  full.most_drafted = full.draft.num_levels = 0;
  for (const DraftChoice choice :
       {kAutoChoice, by_both(4), DraftChoice{.lookup = true, .draft = true, .is_auto = true}}) {
    const RoundPlan plan = Controller(costs, choice, 1, 100).plan(full);
    CHECK(plan.num_lookup == 0 && plan.num_draft == 0);
    CHECK(plan.tokens == 1 && plan.seconds == 1);
  }
}

void test_rows_that_are_worth_verifying() {
  const RoundCosts costs = simulation::costs(0.03);
  Controller controller(costs, kAutoChoice, 100, 100);
  controller.plan(state());
  TokenTree tree;
  int32_t last = TokenTree::kRoot;
  for (int32_t i = 0; i < 3; ++i) last = tree.add(i, last, 0.95f);
  for (int32_t i = 3; i < 8; ++i) last = tree.add(i, last, 0.3f);
  const int32_t num_worth = controller.num_worth(tree);
  CHECK(num_worth >= 3 && num_worth <= 4);
  TokenTree hopeless;
  hopeless.add(1, TokenTree::kRoot, 0.001f);
  CHECK_EQ(controller.num_worth(hopeless), 0);
}

// A pass costs each of those who share it its part, and whoever puts further
// rows into it all that they add.
void test_requests_that_share_a_pass() {
  const RoundCosts costs = simulation::costs(0.03);
  RoundState alone = state(), shared = state();
  shared.share = {.num_requests = 4, .num_other_rows = 3};
  alone.most_drafted = shared.most_drafted = alone.draft.num_levels = shared.draft.num_levels = 0;
  CHECK_NEAR(Controller(costs, kAutoChoice, 100, 100).plan(alone).seconds, 1, 1e-9);
  CHECK_NEAR(Controller(costs, kAutoChoice, 100, 100).plan(shared).seconds, 1.15 / 4, 1e-9);
  const DraftChoice two = by_draft(2);
  RoundState pinned = state();
  pinned.share = shared.share;
  const double drafting = costs.draft->drafting(1, 2, 1, 99);
  CHECK_NEAR(Controller(costs, two, 100, 100).plan(pinned).seconds, 1.325 - 0.75 * 1.15 + drafting, 1e-9);

  // Where four rows cost as much as one and eight do not, less is worth a row
  // in company.
  TokenTree tree;
  int32_t last = TokenTree::kRoot;
  for (const float prob : {0.9f, 0.8f, 0.5f, 0.3f, 0.3f}) last = tree.add(last + 1, last, prob);
  const auto num_worth = [&](const pilotfish::PassShare& share) {
    Controller controller(costs, kAutoChoice, 100, 100);
    RoundState round = state();
    round.share = share;
    controller.plan(round);
    return controller.num_worth(tree);
  };
  CHECK(num_worth({.num_requests = 4, .num_other_rows = 3}) < num_worth({}));
  CHECK(num_worth({.num_requests = 4, .num_other_rows = 3}) > 0);
  CHECK(num_worth({.num_requests = 2, .num_other_rows = 1}) >= num_worth({.num_requests = 4, .num_other_rows = 3}));
}

// Two cores with AVX-512 and the default pair: a pass over 8 rows takes 1.55 of one over one, a pass of the draft 0.14.
RoundCosts costs_of_two_cores() {
  const auto table = [](std::vector<int32_t> rows, const std::vector<double>& seconds) {
    return PassCosts{.rows = std::move(rows), .contexts = {0, 1024}, .seconds = {seconds, seconds}};
  };
  return {.verify = table({1, 2, 4, 8, 16}, {1, 1.02, 1.13, 1.55, 2.65}),
          .draft = DraftCosts{.begin = table({1, 8, 128}, {0.14, 0.16, 2.0}), .level = table({1, 8}, {0.14, 0.16})},
          .head = {},
          .is_measured = true};
}

// Where drafts do not pay in company, looking costs what there is for it at first and what the rounds earn.
void test_looking_costs_little_in_company() {
  const RoundCosts costs = costs_of_two_cores();
  constexpr int kRequests = 16, kTokens = 96;
  for (const int32_t num_requests : {2, 4, 8}) {
    const pilotfish::PassShare share{.num_requests = num_requests, .num_other_rows = num_requests - 1};
    const double plain = costs.verify.at(num_requests, 0) / num_requests;
    pilotfish::DraftMemory memory;
    double seconds = 0;
    int64_t num_tokens = 0;
    for (int seed = 0; seed < kRequests; ++seed) {
      World world(costs, kAuto, seed, 64, share);
      world.controller().recall(memory);
      const Totals totals = world.run({0.05, 0.4, 0, 0}, kTokens);
      world.controller().remember(memory);
      seconds += totals.seconds;
      num_tokens += totals.num_tokens;
    }
    CHECK(static_cast<double>(num_tokens) * plain / seconds > 0.994);
  }
}

// In a device's round all draft the same: each pays an equal part of all rows and passes, and what it has to read.
void test_requests_that_draft_the_same() {
  const auto flat = [](double seconds) {
    return PassCosts{.rows = {1}, .contexts = {0, 1024}, .seconds = {{{seconds}, {seconds}}}};
  };
  const RoundCosts costs{.verify = flat(1), .draft = DraftCosts{.begin = flat(4), .level = flat(2)}, .head = {}};
  const DraftChoice choice{.plain = true,
                           .draft = true,
                           .is_auto = true,
                           .fixes_chains = true,
                           .limits = {.max_tokens = 15, .max_depth = 15}};
  RoundState round = state();
  round.draft.is_shared = true;
  round.share = {.num_requests = 4, .num_other_rows = 3, .chain = pilotfish::SharedChain{}};
  Controller controller(costs, choice, 100, 100);
  const RoundPlan plain = controller.plan(round);
  CHECK_EQ(plain.num_draft, 0);
  CHECK_NEAR(plain.seconds, 0.25, 1e-9);
  const pilotfish::Sharer sharer = controller.sharer(round);
  CHECK(sharer.draft && !sharer.head);
  CHECK_EQ(sharer.draft->most, 8);
  CHECK_EQ(sharer.context, 99);
  round.share.chain->length = 5;
  const RoundPlan shared = controller.plan(round);
  CHECK_EQ(shared.num_draft, 5);
  CHECK_NEAR(shared.seconds, 0.25 * (1 + 4 + 2 * 4), 1e-9);
  round.most_drafted = 0;
  CHECK_EQ(controller.plan(round).num_draft, 0);
  CHECK(!controller.sharer(round).draft);
}

}  // namespace

int main() {
  test_near_the_best_setting_and_never_far_below_plain();
  test_chains_of_a_fixed_length_are_near_the_best_one();
  test_no_chain_is_planned_that_was_not_recorded();
  test_a_gpu_where_verification_is_flat();
  test_confidence_is_only_a_hint();
  test_a_hopeless_draft_of_any_cost_is_left_alone();
  test_follows_the_text();
  test_hysteresis();
  test_pinned_choices();
  test_rounds_without_room();
  test_rows_that_are_worth_verifying();
  test_requests_that_share_a_pass();
  test_looking_costs_little_in_company();
  test_requests_that_draft_the_same();
  return check::result();
}
