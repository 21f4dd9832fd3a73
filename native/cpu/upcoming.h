// Learns in which order weights are read and fetches the next one's beginning while there is nothing else to do.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pilotfish {

// Bytes of a weight; a worker reads its share of them from the front.
struct WeightSpan {
  const std::byte* begin = nullptr;
  size_t num_bytes = 0;
};

class Upcoming {
 public:
  // How far one worker has fetched its share of a weight.
  struct Progress {
    const std::byte* weight = nullptr;
    size_t num_bytes = 0;
  };

  // The thread that runs the passes begins to read a weight: what came after it last time comes next.
  void begin(WeightSpan weight) {
    successor_[slot(last_)] = weight;
    last_ = weight.begin;
    const WeightSpan& next = successor_[slot(weight.begin)];
    num_bytes_.store(next.num_bytes, std::memory_order_relaxed);
    next_.store(next.begin, std::memory_order_relaxed);
  }

  // Fetches a little of what `worker` of num_workers reads next; false when enough of it is on its way.
  bool fetch(size_t worker, size_t num_workers, Progress& progress) const {
    const std::byte* const next = next_.load(std::memory_order_relaxed);
    if (next == nullptr) return false;
    if (next != progress.weight) progress = {next, 0};
    const size_t num_bytes = num_bytes_.load(std::memory_order_relaxed), share = num_bytes / num_workers;
    if (progress.num_bytes >= (share < kMostBytes ? share : kMostBytes)) return false;
    const std::byte* const from = next + share * worker + progress.num_bytes;
    for (size_t line = 0; line < kStepBytes; line += 64) __builtin_prefetch(from + line, 0, 2);
    progress.num_bytes += kStepBytes;
    return true;
  }

 private:
  // A part of the second-level cache that leaves room for what is being used.
  static constexpr size_t kMostBytes = 256 * 1024;
  static constexpr size_t kStepBytes = 1024;
  static constexpr size_t kSlots = 1024;

  // Two weights in one slot only make a fetch useless.
  static size_t slot(const std::byte* weight) {
    return (reinterpret_cast<uintptr_t>(weight) >> 6) * 0x9e3779b97f4a7c15u >> 54;
  }

  std::array<WeightSpan, kSlots> successor_{};
  const std::byte* last_ = nullptr;
  std::atomic<const std::byte*> next_{nullptr};
  std::atomic<size_t> num_bytes_{0};
};

}  // namespace pilotfish
