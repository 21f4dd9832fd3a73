// Runs independent tasks on whatever threads the caller has. Knows nothing about where they come from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "upcoming.h"

namespace pilotfish {

// Tasks [first, last) of a run, taken from the front by the worker that owns them and from the back by others.
class TaskRange {
 public:
  void reset(int64_t first, int64_t last) {
    bounds_.store(static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(last), std::memory_order_relaxed);
  }
  // A task, or -1 when none is left.
  int64_t take_front() {
    return take([](uint64_t first, uint64_t) { return first; }, uint64_t{1} << 32);
  }
  int64_t take_back() {
    return take([](uint64_t, uint64_t last) { return last - 1; }, ~uint64_t{0});
  }

 private:
  template <typename Pick>
  int64_t take(const Pick& pick, uint64_t step) {
    uint64_t bounds = bounds_.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t first = bounds >> 32, last = bounds & 0xffffffff;
      if (first >= last) return -1;
      if (bounds_.compare_exchange_weak(bounds, bounds + step, std::memory_order_relaxed)) {
        return static_cast<int64_t>(pick(first, last));
      }
    }
  }

  alignas(64) std::atomic<uint64_t> bounds_;
};

// A way to call body(argument, worker) for worker = 0 .. num_workers - 1, possibly at the same time, and to wait for
// all. Fewer threads than workers are fine: a worker that comes late finds its tasks done by others.
class Parallel {
 public:
  static constexpr int64_t kMaxWorkers = 64;
  using Body = void (*)(void* argument, size_t worker);
  using Launcher = void (*)(void* context, Body body, size_t num_workers, void* argument, WeightSpan weight);

  Parallel(Launcher launcher, void* context, int64_t num_workers)
      : launcher_(launcher), context_(context), num_workers_(num_workers < kMaxWorkers ? num_workers : kMaxWorkers) {}

  int64_t num_workers() const { return num_workers_; }

  // task(index) for every index in [0, num_tasks), each once; returns when all are done. Tasks must not throw. A worker
  // goes through neighbouring tasks in order: their data is read as one stream, which memory serves twice as fast as
  // pieces that alternate between cores. Whoever is done helps the others from the far end of theirs. `weight`: what
  // the tasks read, if it is a weight.
  template <typename Task>
  void run(int64_t num_tasks, const Task& task, WeightSpan weight = {}) const {
    if (num_tasks <= 1 || num_workers_ <= 1) {
      for (int64_t index = 0; index < num_tasks; ++index) task(index);
      return;
    }
    struct Shared {
      const Task& task;
      const size_t num_workers;
      TaskRange ranges[kMaxWorkers];  // num_workers of them are set
      Shared(const Task& the_task, size_t count) : task(the_task), num_workers(count) {}
    } shared(task, static_cast<size_t>(num_tasks < num_workers_ ? num_tasks : num_workers_));
    const auto count = static_cast<int64_t>(shared.num_workers);
    for (int64_t i = 0; i < count; ++i) shared.ranges[i].reset(num_tasks * i / count, num_tasks * (i + 1) / count);
    const Body body = [](void* argument, size_t worker) {
      Shared& work = *static_cast<Shared*>(argument);
      for (int64_t index; (index = work.ranges[worker].take_front()) >= 0;) work.task(index);
      for (size_t step = 1; step < work.num_workers; ++step) {
        TaskRange& other = work.ranges[(worker + step) % work.num_workers];
        for (int64_t index; (index = other.take_back()) >= 0;) work.task(index);
      }
    };
    launcher_(context_, body, shared.num_workers, &shared, weight);
  }

 private:
  Launcher launcher_;
  void* context_;
  int64_t num_workers_;
};

}  // namespace pilotfish
