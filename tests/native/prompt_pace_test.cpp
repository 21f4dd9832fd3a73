#include "plan/prompt_pace.h"

#include <cstdint>
#include <random>

#include "check.h"

namespace {

using pilotfish::PromptPace;

// What a chunk takes on a machine whose passes read the weights once and then
// take so much a row.
struct Machine {
  double pass, row;
  double seconds(int32_t num_rows) const { return pass + row * num_rows; }
};

// However wrong the guess: soon no chunk is above the bound, and they use most
// of it.
void test_chunks_approach_the_bound_from_below() {
  constexpr Machine kMachine{.pass = 5e-3, .row = 2e-4};
  for (const double guess : {1e-6, 2e-4, 1e-3, 1e-1}) {
    for (const double bound : {8e-3, 20e-3, 50e-3}) {
      PromptPace pace(bound, 256, guess);
      for (int i = 0; i < 60; ++i) pace.record(pace.num_rows(), kMachine.seconds(pace.num_rows()));
      for (int i = 0; i < 200; ++i) {
        const double seconds = kMachine.seconds(pace.num_rows());
        CHECK(seconds <= bound);
        CHECK(seconds >= 0.75 * bound);
        pace.record(pace.num_rows(), seconds);
      }
    }
  }
}

void test_a_slow_chunk_counts_at_once_and_is_forgotten() {
  constexpr Machine kMachine{.pass = 5e-3, .row = 2e-4};
  PromptPace pace(20e-3, 256, 2e-4);
  for (int i = 0; i < 60; ++i) pace.record(pace.num_rows(), kMachine.seconds(pace.num_rows()));
  const int32_t usual = pace.num_rows();
  pace.record(usual, 0.2);
  CHECK(pace.num_rows() <= usual / 8);
  int num_chunks = 0;
  for (; pace.num_rows() < usual * 9 / 10; ++num_chunks) {
    pace.record(pace.num_rows(), kMachine.seconds(pace.num_rows()));
  }
  CHECK(num_chunks < 40);
}

void test_a_prompt_goes_on_whatever_the_bound() {
  PromptPace pace(1e-3, 256, 1e-3);
  for (int i = 0; i < 50; ++i) {
    CHECK_EQ(pace.num_rows(), PromptPace::kLeastRows);
    pace.record(pace.num_rows(), 1.0);
  }
  const PromptPace tiny(1e-3, 2, 1.0);
  CHECK_EQ(tiny.num_rows(), 2);
  const PromptPace unbound(0, 256, 1.0);
  CHECK(!unbound.is_bound());
  CHECK_EQ(unbound.num_rows(), 256);
}

void test_the_end_of_a_prompt_says_nothing_of_whole_chunks() {
  PromptPace pace(20e-3, 256, 2e-4);
  const int32_t before = pace.num_rows();
  pace.record(1, 5e-3);
  pace.record(before - 1, 1.0);
  CHECK_EQ(pace.num_rows(), before);
}

void test_noise_does_not_leave_it_small() {
  constexpr Machine kMachine{.pass = 5e-3, .row = 2e-4};
  std::mt19937 random(1);
  PromptPace pace(30e-3, 256, 2e-4);
  double sum = 0;
  constexpr int kChunks = 2000;
  for (int i = 0; i < kChunks; ++i) {
    const double noise = 1 + 0.2 * (random() % 1000) / 1000.0 + (random() % 100 == 0 ? 2 : 0);
    sum += pace.num_rows();
    pace.record(pace.num_rows(), noise * kMachine.seconds(pace.num_rows()));
  }
  CHECK(sum / kChunks > 50);
}

}  // namespace

int main() {
  test_chunks_approach_the_bound_from_below();
  test_a_slow_chunk_counts_at_once_and_is_forgotten();
  test_a_prompt_goes_on_whatever_the_bound();
  test_the_end_of_a_prompt_says_nothing_of_whole_chunks();
  test_noise_does_not_leave_it_small();
  return check::result();
}
