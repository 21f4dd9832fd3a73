#include "controller.h"

#include "check.h"

namespace {

using pilotfish::DraftController;

constexpr int kMost = 8;

int rounds_that_draft(DraftController& controller, int num_rounds, bool first_accepted) {
  int num_drafts = 0;
  for (int i = 0; i < num_rounds; ++i) {
    if (controller.limit(kMost) == 0) continue;
    ++num_drafts;
    controller.record(first_accepted);
  }
  return num_drafts;
}

void test_accepted_drafts_go_on() {
  DraftController controller(10, 100);
  CHECK_EQ(rounds_that_draft(controller, 1000, true), 1000);
}

// A hopeless draft is given up for all but one round in sixteen, and taken up
// again when it is accepted once more.
void test_rejected_drafts_fade_and_come_back() {
  DraftController controller(10, 100);
  const int before_giving_up = rounds_that_draft(controller, 100, false);
  CHECK(before_giving_up > 16 && before_giving_up < 50);
  CHECK_EQ(rounds_that_draft(controller, 160, false), 10);
  rounds_that_draft(controller, 200, true);
  CHECK_EQ(rounds_that_draft(controller, 100, true), 100);
}

void test_a_costlier_draft_stops_earlier() {
  CHECK_NEAR(DraftController(10, 100).least_confidence(), 0.36, 1e-6);
  CHECK_NEAR(DraftController(20, 100).least_confidence(), 0.56, 1e-6);
  CHECK(DraftController(100, 100).least_confidence() < 1);
}

}  // namespace

int main() {
  test_accepted_drafts_go_on();
  test_rejected_drafts_fade_and_come_back();
  test_a_costlier_draft_stops_earlier();
  return check::result();
}
