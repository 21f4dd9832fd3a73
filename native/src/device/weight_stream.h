// The order in which weights that stay in host memory come to the device: through two slots, each filled again as soon
// as the linear that read it has ended. Every pass begins and ends with the first two weights in the slots and nothing
// on its way, so that passes may be recorded and launched in any order. Knows streams by an interface alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/status.h"

namespace pilotfish {

// Memory behind the slots.
inline constexpr size_t kStreamMarkerBytes = 256;

// Copies of weights into the slots. Readers are linears, which the main stream runs; copies have a stream of their own.
class WeightCopies {
 public:
  virtual ~WeightCopies() = default;
  // On the main stream, after every copy that has begun.
  virtual void load(size_t slot, size_t reader) = 0;
  // On the copies' stream, after all that the main stream has been given so far.
  virtual void start(size_t slot, size_t reader) = 0;
  // The main stream goes on when the last copy into the slot has ended.
  virtual void wait(size_t slot) = 0;
};

class WeightStream {
 public:
  static constexpr size_t kNumSlots = 2;

  explicit WeightStream(WeightCopies& copies) : copies_(copies) {}

  // The number of a further linear that reads a streamed weight; all are added before the first pass.
  size_t add_reader() { return num_readers_++; }
  size_t num_readers() const noexcept { return num_readers_; }

  // Before the reader is enqueued: the slot that has its weight. The first pass learns the order of the readers, which
  // is that of every pass.
  size_t acquire(size_t reader) {
    if (is_learning_) return learn(reader);
    if (next_ != 0 && reader == order_.front()) refill();  // the last pass failed on its way
    if (order_[next_] != reader) {
      fail(PF_INTERNAL, "streamed weight ", reader, " is read where the first pass read ", order_[next_]);
    }
    const size_t slot = next_ % kNumSlots;
    if (next_ >= kNumSlots) copies_.wait(slot);
    return slot;
  }

  // After it was enqueued.
  void release() {
    const size_t slot = next_++ % kNumSlots;
    const bool is_last = next_ == num_readers_;
    if (is_learning_) {
      if (!is_last) return;
      is_learning_ = false;
      return refill();
    }
    // Two weights stay where they are.
    if (num_readers_ > kNumSlots) copies_.start(slot, order_[next_ + 1 < num_readers_ ? next_ + 1 : slot]);
    if (!is_last) return;
    next_ = 0;
    if (num_readers_ <= kNumSlots) return;
    for (size_t i = 0; i < kNumSlots; ++i) copies_.wait(i);
  }

 private:
  size_t learn(size_t reader) {
    if (std::find(order_.begin(), order_.end(), reader) != order_.end()) {  // the last pass failed on its way
      order_.clear();
      next_ = 0;
    }
    order_.push_back(reader);
    const size_t slot = next_ % kNumSlots;
    copies_.load(slot, reader);
    return slot;
  }

  // The slots as every pass finds them.
  void refill() {
    next_ = 0;
    for (size_t i = 0; i < std::min(kNumSlots, num_readers_); ++i) copies_.load(i, order_[i]);
  }

  WeightCopies& copies_;
  size_t num_readers_ = 0;
  std::vector<size_t> order_;  // readers as a pass has them
  size_t next_ = 0;            // of order_, in this pass
  bool is_learning_ = true;
};

}  // namespace pilotfish
