#include "workers.h"

#include <algorithm>
#include <map>

namespace pilotfish {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // waits about as long as x86 does; `yield` does not wait at all on most cores
#else
  std::this_thread::yield();
#endif
}

}  // namespace

Workers::Workers(int64_t num_threads) : num_threads_(std::clamp<int64_t>(num_threads, 1, Parallel::kMaxWorkers)) {
  for (int64_t worker = 1; worker < num_threads_; ++worker) {
    threads_.emplace_back([this, worker] { work(static_cast<size_t>(worker)); });
  }
}

Workers::~Workers() {
  stopping_ = true;
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<Workers> Workers::shared(int64_t num_threads) {
  static std::mutex mutex;
  static auto& all = *new std::map<int64_t, std::weak_ptr<Workers>>();
  const std::lock_guard lock(mutex);
  std::weak_ptr<Workers>& entry = all[num_threads];
  std::shared_ptr<Workers> workers = entry.lock();
  if (!workers) entry = workers = std::make_shared<Workers>(num_threads);
  return workers;
}

void Workers::launch(void* context, Parallel::Body body, size_t num_workers, void* argument, WeightSpan weight) {
  Workers& self = *static_cast<Workers*>(context);
  const std::unique_lock lock(self.busy_, std::try_to_lock);
  if (!lock) return body(argument, 0);  // another engine's pass has the threads; worker 0 helps itself to all tasks
  if (weight.begin != nullptr) self.upcoming_.begin(weight);
  self.body_ = body;
  self.argument_ = argument;
  self.num_workers_ = num_workers;
  self.num_left_.store(0, std::memory_order_relaxed);
  const uint32_t job = self.job_.load(std::memory_order_relaxed) + 1;
  self.entries_.store(uint64_t{job} << 32, std::memory_order_release);
  self.job_.store(job, std::memory_order_release);
  self.job_.notify_all();
  body(argument, 0);
  const auto num_entered = static_cast<uint32_t>(self.entries_.fetch_or(kClosed, std::memory_order_acq_rel));
  for (int pauses = 0; self.num_left_.load(std::memory_order_acquire) != num_entered; ++pauses) {
    if (pauses < kPausesBeforeYield) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void Workers::work(size_t worker) {
  Upcoming::Progress fetched;
  for (uint32_t done = 0;;) {
    done = wait_for_job(done, worker, fetched);
    if (stopping_) return;
    uint64_t entries = entries_.load(std::memory_order_acquire);
    while (entries >> 32 == done && (entries & kClosed) == 0) {
      if (!entries_.compare_exchange_weak(entries, entries + 1, std::memory_order_acquire)) continue;
      if (worker < num_workers_) body_(argument_, worker);
      num_left_.fetch_add(1, std::memory_order_release);
      break;
    }
  }
}

uint32_t Workers::wait_for_job(uint32_t done, size_t worker, Upcoming::Progress& fetched) {
  for (int waits = 0;;) {
    const uint32_t job = job_.load(std::memory_order_acquire);
    if (job != done) return job;
    if (upcoming_.fetch(worker, static_cast<size_t>(num_threads_), fetched)) continue;
    if (++waits < kPausesBeforeYield) {
      pause();
    } else if (waits < kPausesBeforeYield + kYieldsBeforeSleep) {
      std::this_thread::yield();
    } else {
      job_.wait(done, std::memory_order_acquire);
    }
  }
}

}  // namespace pilotfish
