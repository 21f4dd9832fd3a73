// Weights that stream through two slots: what a linear reads is its own weight,
// copies overwrite nothing that is still read, and every pass leaves the slots
// as it found them; with streams that a test plays in the worst order.
#include "device/weight_stream.h"

#include <array>
#include <deque>
#include <functional>
#include <vector>

#include "check.h"

namespace {

using namespace pilotfish;

// Two streams whose work runs when the test says: copies as late as the main
// stream's waits allow, or as early as the main stream's own work does.
class TwoStreams : public WeightCopies {
 public:
  explicit TwoStreams(bool eager_copies) : eager_copies_(eager_copies) {}

  void load(size_t slot, size_t reader) override {
    while (!copies_.empty()) run_copy();
    main_.push_back([=, this] { held_[slot] = reader; });
    ++num_loaded;
  }
  void start(size_t slot, size_t reader) override {
    copies_.push_back({slot, reader, num_run_ + main_.size()});
    last_copy_[slot] = ++num_started;
  }
  void wait(size_t slot) override {
    const size_t needed = last_copy_[slot];
    main_.push_back([=, this] {
      while (num_copied_ < needed) run_copy();
    });
  }
  // A linear that reads its weight, enqueued.
  void read(size_t slot, size_t reader) {
    main_.push_back([=, this] { CHECK_EQ(held_[slot], reader); });
  }
  // A pass that has ended has nothing on its way.
  void finish() {
    run_main();
    CHECK(copies_.empty());
  }
  // A pass that has failed may.
  void run_all() {
    run_main();
    while (!copies_.empty()) run_copy();
  }
  std::array<size_t, WeightStream::kNumSlots> held() const { return held_; }

  size_t num_loaded = 0, num_started = 0;

 private:
  struct Copy {
    size_t slot, reader, after;  // so much of the main stream's work
  };

  void run_main() {
    while (!main_.empty()) {
      while (eager_copies_ && !copies_.empty() && copies_.front().after <= num_run_) run_copy();
      run_next();
    }
  }
  void run_next() {
    const std::function<void()> work = main_.front();
    main_.pop_front();
    ++num_run_;
    work();
  }
  void run_copy() {
    const Copy copy = copies_.front();
    copies_.pop_front();
    while (num_run_ < copy.after) run_next();
    held_[copy.slot] = copy.reader;
    ++num_copied_;
  }

  const bool eager_copies_;
  std::deque<std::function<void()>> main_;
  std::deque<Copy> copies_;
  size_t num_run_ = 0, num_copied_ = 0;
  std::array<size_t, WeightStream::kNumSlots> held_{~size_t{0}, ~size_t{0}}, last_copy_{};
};

std::vector<size_t> order_of(size_t count) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = count - 1 - i;  // not that in which readers were added
  return order;
}

void run_pass(WeightStream& stream, TwoStreams& streams, const std::vector<size_t>& order) {
  for (const size_t reader : order) {
    streams.read(stream.acquire(reader), reader);
    stream.release();
  }
  streams.finish();
}

WeightStream made(TwoStreams& streams, size_t count) {
  WeightStream stream(streams);
  for (size_t i = 0; i < count; ++i) CHECK_EQ(stream.add_reader(), i);
  return stream;
}

void test_every_linear_reads_its_weight(bool eager_copies) {
  for (size_t count = 1; count <= 9; ++count) {
    TwoStreams streams(eager_copies);
    WeightStream stream = made(streams, count);
    const std::vector<size_t> order = order_of(count);
    for (int pass = 0; pass < 4; ++pass) {
      run_pass(stream, streams, order);
      CHECK_EQ(streams.held()[0], order[0]);
      if (count > 1) CHECK_EQ(streams.held()[1], order[1]);
    }
    // Each pass after the first brings each weight once, and none where the
    // slots have room for all.
    CHECK_EQ(streams.num_started, count > WeightStream::kNumSlots ? 3 * count : 0);
    CHECK_EQ(streams.num_loaded, count + std::min(count, WeightStream::kNumSlots));
  }
}

void test_a_pass_that_fails_spoils_no_later_one() {
  for (const size_t count : {2, 3, 6, 7}) {
    for (const int passes_before : {0, 2}) {
      for (size_t failed = 0; failed < count; ++failed) {
        TwoStreams streams(false);
        WeightStream stream = made(streams, count);
        const std::vector<size_t> order = order_of(count);
        for (int pass = 0; pass < passes_before; ++pass) run_pass(stream, streams, order);
        for (size_t i = 0; i < failed; ++i) {
          streams.read(stream.acquire(order[i]), order[i]);
          stream.release();
        }
        stream.acquire(order[failed]);  // and no release: its launch has failed
        streams.run_all();
        for (int pass = 0; pass < 3; ++pass) run_pass(stream, streams, order);
      }
    }
  }
}

void test_another_order_is_refused() {
  TwoStreams streams(false);
  WeightStream stream = made(streams, 4);
  run_pass(stream, streams, {0, 1, 2, 3});
  stream.acquire(0);
  stream.release();
  CHECK_ERROR(PF_INTERNAL, "streamed weight 2 is read where the first pass read 1", stream.acquire(2));
}

}  // namespace

int main() {
  test_every_linear_reads_its_weight(false);
  test_every_linear_reads_its_weight(true);
  test_a_pass_that_fails_spoils_no_later_one();
  test_another_order_is_refused();
  return check::result();
}
