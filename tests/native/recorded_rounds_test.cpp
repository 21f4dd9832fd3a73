// When rounds on a device are recorded, launched and forgotten; without a device.
#include "engine/recorded_rounds.h"

#include <memory>
#include <vector>

#include "base/status.h"
#include "check.h"
#include "device/chain_lengths.h"

namespace {

using namespace pilotfish;

// A pass of each model counts as one.
constexpr RecordedPassBytes kOneEach{1, 1, 1};

// Counts what happens to the recordings of rounds.
struct Recorder {
  struct Graph : CudaGraph {
    explicit Graph(Recorder& owner) : recorder(owner) {}
    ~Graph() override { ++recorder.num_forgotten; }
    void launch() override { ++recorder.num_launched; }
    Recorder& recorder;
  };

  explicit Recorder(uint64_t most_passes)
      : rounds(
            [this](const RecordedRounds::Enqueue& enqueue) {
              enqueue();
              ++num_recorded;
              return std::make_unique<Graph>(*this);
            },
            kOneEach, most_passes) {}

  int num_enqueued = 0, num_recorded = 0, num_launched = 0, num_forgotten = 0;
  RecordedRounds rounds;

  void run(RoundKind kind) {
    rounds.run(kind, [this] { ++num_enqueued; });
  }
  void record(RoundKind kind) {
    rounds.record(kind, [this] { ++num_enqueued; });
  }
};

void test_a_round_is_recorded_the_second_time() {
  Recorder recorder(128);
  for (int i = 0; i < 4; ++i) recorder.run({4, true});
  CHECK_EQ(recorder.num_enqueued, 2);  // as it is, and into the recording
  CHECK_EQ(recorder.num_recorded, 1);
  CHECK_EQ(recorder.num_launched, 3);
  recorder.run({4, false});  // other kinds
  recorder.run({4, true, Drafted::kTreeBefore});
  CHECK_EQ(recorder.num_recorded, 1);
  CHECK_EQ(recorder.rounds.num_bytes(), uint64_t{5});
  recorder.run({4, true, Drafted::kTreeBefore});
  CHECK_EQ(recorder.rounds.num_bytes(), uint64_t{6});  // it only verifies
}

void test_a_failed_first_round_is_none() {
  Recorder recorder(128);
  CHECK_ERROR(PF_CUDA_FAILED, "no luck", recorder.rounds.run({4, true}, [] { fail(PF_CUDA_FAILED, "no luck"); }));
  recorder.run({4, true});
  CHECK_EQ(recorder.num_recorded, 0);
}

void test_rounds_that_were_not_used_lately_are_forgotten() {
  Recorder recorder(128);
  for (int i = 0; i < 2; ++i) recorder.run({63, true});
  for (int i = 0; i < 2; ++i) recorder.run({47, true});
  CHECK_EQ(recorder.rounds.num_bytes(), uint64_t{64 + 48});
  recorder.run({63, true});  // of the two, used last
  for (int i = 0; i < 2; ++i) recorder.run({31, true});
  CHECK_EQ(recorder.rounds.num_bytes(), uint64_t{64 + 32});
  CHECK_EQ(recorder.num_forgotten, 1);
  recorder.run({47, true});  // its memory exists: recorded anew at once
  CHECK_EQ(recorder.num_recorded, 4);
  CHECK_EQ(recorder.rounds.num_bytes(), uint64_t{48 + 32});
}

void test_rounds_are_recorded_in_advance() {
  Recorder recorder(128);
  recorder.run({63, true});
  recorder.record({63, true});
  recorder.record({62, false});  // its passes have run
  CHECK_EQ(recorder.num_recorded, 2);
  CHECK_EQ(recorder.num_launched, 0);
  recorder.record({62, false});
  recorder.run({62, false});
  CHECK_EQ(recorder.num_recorded, 2);
  CHECK_EQ(recorder.num_launched, 1);
}

// As an engine does that may draft 31 tokens; then the chains of every length that a controller plans.
void test_what_was_recorded_in_advance_is_kept() {
  constexpr int32_t kMostDrafted = 31;
  for (const auto& sources : {std::vector{Source::kDraft}, std::vector{Source::kDraft, Source::kHead}}) {
    const auto num_drafting = static_cast<int32_t>(sources.size());
    const RecordedPassBytes pass{1, 1, sources.size() > 1 ? uint64_t{1} : 0};
    Recorder recorder(most_recorded_bytes(pass, kLongestPlannedChain));
    for (const bool is_greedy : {true, false}) {
      recorder.record({0, is_greedy});
      for (const int32_t length : recorded_lengths(kMostDrafted)) {
        if (length == 0) continue;
        for (const Source source : sources)
          recorder.record({.num_drafted = length, .is_greedy = is_greedy, .source = source});
        recorder.record({length, is_greedy, Drafted::kChainBefore});
        recorder.record({length, is_greedy, Drafted::kTreeBefore});
      }
    }
    CHECK_EQ(recorder.num_forgotten, 0);
    const int num_enqueued = recorder.num_enqueued;
    for (const int32_t length : kChainLengths) {
      if (length > kLongestPlannedChain) break;
      for (const Source source : sources) recorder.run({.num_drafted = length, .is_greedy = true, .source = source});
    }
    CHECK_EQ(recorder.num_enqueued, num_enqueued);
    CHECK_EQ(recorder.num_launched, 8 * num_drafting);
  }
}

void test_recorded_passes_are_planned() {
  CHECK((recorded_lengths(0) == std::vector<int32_t>{0}));
  CHECK((recorded_lengths(7) == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 7}));
  CHECK((recorded_lengths(8) == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 7, 8}));
  CHECK_EQ(recorded_round_bytes({1, 1, 0}, 0), uint64_t{2});  // plain, greedy and sampled
  CHECK_EQ(recorded_round_bytes({1, 1, 0}, 2), uint64_t{2 * (1 + (2 + 2) + (3 + 2))});
  CHECK_EQ(recorded_round_bytes({1, 0, 0}, 2), uint64_t{2 * (1 + 2 + 2)});
  CHECK_EQ(recorded_round_bytes({1, 1, 1}, 2), uint64_t{2 * (1 + (4 + 2) + (6 + 2))});
  CHECK_EQ(recorded_round_bytes({100, 10, 1}, 2), uint64_t{2 * (100 + (400 + 11) + (400 + 22))});
  CHECK((recorded_lengths(63) == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 7, 11, 15}));
  CHECK_EQ(most_recorded_bytes({1, 1, 0}, 63), uint64_t{146});
  CHECK_EQ(most_recorded_bytes({1, 100, 0}, 63), uint64_t{2 * (25 + 4800)});
  CHECK_EQ(most_recorded_bytes({1, 0, 0}, 63), uint64_t{34});
}

// Of a sampled and a greedy plain round for each number of sequences, those that draft and those that only verify.
void test_shared_passes_are_planned() {
  CHECK_EQ(most_shared_bytes({100, 10, 1}, 1), uint64_t{0});
  CHECK_EQ(most_shared_bytes({100, 0, 0}, 4), uint64_t{100 * (6 + 8)});
  CHECK_EQ(most_shared_bytes({100, 10, 1}, 4), uint64_t{100 * (6 + 8 + 24) + 24 * 3 * 10});
  CHECK_EQ(most_shared_bytes({100, 10, 1}, 16), uint64_t{100 * (30 + 15 + 45) + 45 * 3 * 10});
}

// A recording of a small model's passes makes room for less than one of a large one's.
void test_passes_count_by_their_models() {
  const RecordedPassBytes pass{.target = 100, .draft = 10, .head = 1};
  CHECK_EQ((RoundKind{4, true}.num_bytes(pass)), uint64_t{140});
  CHECK_EQ((RoundKind{.num_drafted = 4, .is_greedy = true, .source = Source::kHead}.num_bytes(pass)), uint64_t{104});
  CHECK_EQ((RoundKind{4, true, Drafted::kChainBefore}.num_bytes(pass)), uint64_t{100});
  CHECK_EQ((RoundKind{7, true, Drafted::kTreeInRound, 3}.num_bytes(pass)), uint64_t{130});
}

}  // namespace

int main() {
  test_a_round_is_recorded_the_second_time();
  test_a_failed_first_round_is_none();
  test_rounds_that_were_not_used_lately_are_forgotten();
  test_rounds_are_recorded_in_advance();
  test_what_was_recorded_in_advance_is_kept();
  test_recorded_passes_are_planned();
  test_shared_passes_are_planned();
  test_passes_count_by_their_models();
  return check::result();
}
