// When passes on a device are recorded, launched and forgotten; without a device.
#include "model/recorded_passes.h"

#include <memory>
#include <random>

#include "base/status.h"
#include "check.h"
#include "device/chain_lengths.h"

namespace {

using namespace pilotfish;

// Counts what happens to the recordings of passes.
struct Recorder {
  struct Graph : CudaGraph {
    explicit Graph(Recorder& owner) : recorder(owner) { ++recorder.num_kept; }
    ~Graph() override { --recorder.num_kept; }
    void launch() override { ++recorder.num_launched; }
    Recorder& recorder;
  };

  int num_as_they_are = 0, num_recorded = 0, num_launched = 0, num_kept = 0;
  bool is_recording = false;
  RecordedPasses passes{[this](const RecordedPasses::Enqueue& enqueue) {
    is_recording = true;
    enqueue();
    is_recording = false;
    ++num_recorded;
    return std::make_unique<Graph>(*this);
  }};

  // Whether a pass of so many rows came from a recording.
  bool run(int32_t num_rows, int32_t num_outputs = 1) {
    const int before = num_launched;
    passes.run({.num_rows = num_rows, .num_outputs = num_outputs}, [this] { num_as_they_are += is_recording ? 0 : 1; });
    return num_launched > before;
  }
};

void test_a_shape_is_recorded_when_it_has_occurred_often() {
  Recorder recorder;
  for (int32_t i = 1; i < kPassesBeforeRecording; ++i) CHECK(!recorder.run(4));
  CHECK_EQ(recorder.num_recorded, 0);
  for (int i = 0; i < 5; ++i) CHECK(recorder.run(4));
  CHECK_EQ(recorder.num_recorded, 1);
  CHECK(!recorder.run(5));
  CHECK(!recorder.run(4, 2));  // another shape
  CHECK_EQ(recorder.num_as_they_are, kPassesBeforeRecording + 1);
}

void test_shapes_in_turn_do_not_take_each_others_places() {
  Recorder recorder;
  constexpr int kTurns = 50;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int32_t rows = 1; rows <= 2 * kMostRecordedShapes; ++rows) recorder.run(rows);
  }
  CHECK_EQ(recorder.num_recorded, kMostRecordedShapes);
  CHECK_EQ(recorder.num_launched, (kTurns - kPassesBeforeRecording + 1) * kMostRecordedShapes);
}

void test_shapes_that_occur_no_longer_give_way() {
  Recorder recorder;
  for (int turn = 0; turn < kPassesBeforeRecording; ++turn) {
    for (int32_t rows = 1; rows <= kMostRecordedShapes; ++rows) recorder.run(rows);
  }
  CHECK_EQ(recorder.num_kept, kMostRecordedShapes);
  for (int i = 0; i < kPassesBeforeRecording; ++i) recorder.run(1000);
  CHECK(recorder.run(1000));
  CHECK_EQ(recorder.num_kept, kMostRecordedShapes);
  CHECK(recorder.run(2));
  CHECK(!recorder.run(1));  // its place was taken: it was used longest ago, and is counted anew
  for (int i = 2; i < kPassesBeforeRecording; ++i) CHECK(!recorder.run(1));
  CHECK(recorder.run(1));
}

void test_failed_passes_do_not_count() {
  Recorder recorder;
  for (int32_t i = 0; i < 2 * kPassesBeforeRecording; ++i) {
    CHECK_ERROR(PF_CUDA_FAILED, "no luck",
                recorder.passes.run({.num_rows = 4, .num_outputs = 1}, [] { fail(PF_CUDA_FAILED, "no luck"); }));
  }
  for (int32_t i = 1; i < kPassesBeforeRecording; ++i) CHECK(!recorder.run(4));
  CHECK(recorder.run(4));
}

void test_any_passes() {
  std::minstd_rand random(7);
  for (int32_t num_shapes : {1, 20, kMostRecordedShapes, kMostRecordedShapes + 1, 200}) {
    Recorder recorder;
    for (int i = 1; i <= 5000; ++i) {
      recorder.run(1 + static_cast<int32_t>(random() % num_shapes));
      CHECK_EQ(recorder.num_as_they_are + recorder.num_launched, i);
      CHECK(recorder.num_kept <= kMostRecordedShapes);
    }
    if (num_shapes <= kMostRecordedShapes) CHECK_EQ(recorder.num_recorded, num_shapes);
  }
}

}  // namespace

int main() {
  test_a_shape_is_recorded_when_it_has_occurred_often();
  test_shapes_in_turn_do_not_take_each_others_places();
  test_shapes_that_occur_no_longer_give_way();
  test_failed_passes_do_not_count();
  test_any_passes();
  return check::result();
}
