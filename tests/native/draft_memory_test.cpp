// What requests leave to each other about drafting, in a simulated world.
#include "plan/draft_memory.h"

#include <array>

#include "check.h"
#include "controller_simulation.h"

namespace {

using namespace simulation;

// For the draft to read a prompt takes longer than an engine may lose at first:
// what several requests leave is enough.
void test_requests_leave_credit_and_experience() {
  constexpr int32_t kPromptTokens = 128;
  const RoundCosts costs = simulation::costs(0.39);
  const Profile profile{0.9, 0.9, 0, 0};
  pilotfish::DraftMemory memory;
  Totals all;
  for (int seed = 0; seed < 2 * kSeeds; ++seed) {
    CHECK_EQ(World(costs, kAuto, seed, kPromptTokens).run(profile, 64).num_draft_rounds, 0);
    World world(costs, kAuto, seed, kPromptTokens);
    world.controller().recall(memory);
    const Totals totals = world.run(profile, 64);
    world.controller().remember(memory);
    CHECK(seed > 0 || totals.num_draft_rounds == 0);
    all.num_tokens += totals.num_tokens;
    all.num_draft_rounds += totals.num_draft_rounds;
    all.seconds += totals.seconds;
  }
  CHECK(all.num_draft_rounds > 100);
  CHECK(all.rate() > 1.1);
  CHECK(memory.draft && memory.draft->accepted() > 1);
  // Texts for which the draft is hopeless use up what better ones earned; then
  // it is tried for next to nothing.
  Totals later;
  for (int seed = 0; seed < 2 * kSeeds; ++seed) {
    World world(costs, kAuto, seed, kPromptTokens);
    world.controller().recall(memory);
    const Totals totals = world.run({0.02, 0.02, 0, 0}, 64);
    world.controller().remember(memory);
    if (seed < kSeeds) continue;
    later.num_tokens += totals.num_tokens;
    later.seconds += totals.seconds;
  }
  CHECK(later.rate() > 0.98);
}

// The shapes of the issue on a GPU: a draft that has to read a prompt of 100
// tokens for two plain rounds is tried at once, not when its output is nearly
// over. A hopeless one costs an engine's first output 4 plain rounds and the
// next ones nearly nothing.
void test_the_first_request_drafts() {
  RoundCosts costs = gpu_costs();
  const std::vector<double> begin{0.772, 3.5, 6.4};
  costs.draft->begin = {.rows = {1, 64, 128}, .contexts = {64, 2048}, .seconds = {begin, begin}};
  DraftChoice choice = kAutoChoice;
  choice.fixes_chains = true;
  constexpr int kRequests = 3;
  constexpr int64_t kNumTokens = 128;
  const double plain = kNumTokens * costs.verify.at(1, 64);
  double right = 0;
  std::array<double, kRequests> wrong{};
  for (int seed = 0; seed < kSeeds; ++seed) {
    right += World(costs, {choice}, seed, 100).run({0.95, 0.95, 0, 0}, kNumTokens).seconds / kSeeds;
    pilotfish::DraftMemory memory;
    for (int i = 0; i < kRequests; ++i) {
      World world(costs, {choice}, kRequests * seed + i, 100);
      world.controller().recall(memory);
      wrong[i] += world.run({0.02, 0.02, 0, 0}, kNumTokens).seconds / kSeeds;
      world.controller().remember(memory);
    }
  }
  CHECK(plain / right > 1.5);
  CHECK(plain / wrong[0] > 0.965);
  CHECK(kRequests * plain / (wrong[0] + wrong[1] + wrong[2]) > 0.985);
}

// Each takes what it may lose out of the engine's credit, at most a tenth of
// its own length, and gives back what is left.
void test_requests_at_once_share_the_credit() {
  const RoundCosts costs = simulation::costs(0.03);
  pilotfish::DraftMemory memory;
  Controller brief(costs, kAutoChoice, 10, 100), first(costs, kAutoChoice, 100, 100),
      second(costs, kAutoChoice, 100, 100);
  const RoundState state{
      .num_tokens = 100, .most_drafted = 8, .num_remaining = 100, .draft = {.num_levels = 8}, .head = {}, .lookup = {}};
  brief.recall(memory);
  CHECK_EQ(memory.credit, pilotfish::DraftMemory::kFirstCredit - 1);
  first.recall(memory);
  CHECK_EQ(memory.credit, 0);
  second.recall(memory);
  CHECK(first.plan(state).num_draft > 0);
  CHECK_EQ(second.plan(state).num_draft, 0);
  for (const Controller* controller : {&brief, &first, &second}) controller->remember(memory);
  CHECK_EQ(memory.credit, pilotfish::DraftMemory::kFirstCredit);
}

}  // namespace

int main() {
  test_requests_leave_credit_and_experience();
  test_the_first_request_drafts();
  test_requests_at_once_share_the_credit();
  return check::result();
}
