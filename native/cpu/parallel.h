// Runs independent tasks on whatever threads the caller has, with dynamic balance. Knows nothing about where they come
// from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pilotfish {

// A way to call body(argument, worker) for worker = 0 .. num_workers - 1, possibly at the same time, and to wait for
// all. Fewer threads than workers are fine: tasks are taken from a shared counter, so late workers find none left.
class Parallel {
 public:
  using Body = void (*)(void* argument, size_t worker);
  using Launcher = void (*)(void* context, Body body, size_t num_workers, void* argument);

  Parallel(Launcher launcher, void* context, int64_t num_workers)
      : launcher_(launcher), context_(context), num_workers_(num_workers) {}

  int64_t num_workers() const { return num_workers_; }

  // task(index) for every index in [0, num_tasks), each once, in any order; returns when all are done. Tasks must not
  // throw.
  template <typename Task>
  void run(int64_t num_tasks, const Task& task) const {
    if (num_tasks <= 1 || num_workers_ <= 1) {
      for (int64_t index = 0; index < num_tasks; ++index) task(index);
      return;
    }
    struct Shared {
      const Task& task;
      const int64_t num_tasks;
      alignas(64) std::atomic<int64_t> next{0};
    } shared{task, num_tasks};
    const Body body = [](void* argument, size_t) {
      Shared& work = *static_cast<Shared*>(argument);
      for (;;) {
        const int64_t index = work.next.fetch_add(1, std::memory_order_relaxed);
        if (index >= work.num_tasks) return;
        work.task(index);
      }
    };
    const int64_t num_useful = num_tasks < num_workers_ ? num_tasks : num_workers_;
    launcher_(context_, body, static_cast<size_t>(num_useful), &shared);
  }

 private:
  Launcher launcher_;
  void* context_;
  int64_t num_workers_;
};

}  // namespace pilotfish
