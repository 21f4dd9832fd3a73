#include "plan/confidence_rates.h"

#include "check.h"

namespace {

using pilotfish::ConfidenceRates;
using pilotfish::Guess;

void test_believes_the_drafter_at_first() {
  const ConfidenceRates rates;
  for (const float confidence : {0.001f, 0.1f, 0.5f, 0.99f, 1.0f}) {
    CHECK_NEAR(rates.prob({0, confidence}, 1), confidence, 1e-6);
    CHECK_NEAR(rates.prob({40, confidence}, 9), confidence, 1e-6);
  }
}

// Sure tokens are right half as often as the drafter says, second guesses always; other depths are left as they are.
void test_learns_by_rank_and_confidence() {
  ConfidenceRates rates;
  for (int i = 0; i < 400; ++i) {
    rates.record({0, 0.9f}, 1 + i % 6, i % 20 < 9);
    rates.record({1, 0.3f}, 1 + i % 6, true);
  }
  CHECK_NEAR(rates.prob({0, 0.9f}, 2), 0.45, 0.08);
  CHECK_NEAR(rates.prob({0, 0.1f}, 2), 0.1, 0.03);
  CHECK(rates.prob({1, 0.3f}, 2) > 0.8f);
  CHECK_NEAR(rates.mean(0), 0.45, 0.06);
  CHECK(rates.mean(1) > 0.95f);
  CHECK(rates.prob({0, 0.9f}, 1) <= 1 && rates.prob({1, 0.39f}, 1) <= 1);
}

// Deeper tokens fail where the confidence is the same.
void test_learns_by_depth() {
  ConfidenceRates rates;
  for (int i = 0; i < 400; ++i) {
    rates.record({0, 0.5f}, 1, i % 4 != 0);
    rates.record({0, 0.5f}, 6, i % 4 == 0);
  }
  CHECK(rates.prob({0, 0.5f}, 1) > 0.6f);
  CHECK(rates.prob({0, 0.5f}, 6) < 0.4f);
  CHECK(rates.prob({0, 0.5f}, 6) > 0);  // a token that never was right is unlikely, not impossible
}

void test_follows_a_change() {
  ConfidenceRates rates;
  for (int i = 0; i < 1000; ++i) rates.record({0, 0.8f}, 1, true);
  for (int i = 0; i < 200; ++i) rates.record({0, 0.8f}, 1, false);
  CHECK(rates.prob({0, 0.8f}, 1) < 0.2f);
}

}  // namespace

int main() {
  test_believes_the_drafter_at_first();
  test_learns_by_rank_and_confidence();
  test_learns_by_depth();
  test_follows_a_change();
  return check::result();
}
