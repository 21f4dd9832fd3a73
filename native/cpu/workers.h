// The threads that share a pass's tasks. They spin between the operators of a pass and sleep between passes. While a
// worker has nothing to do it fetches the weights that it will read next into its second-level cache, so that memory
// works through what one thread does alone: operators' ends and beginnings, activations, ONNX Runtime's nodes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel.h"
#include "upcoming.h"

namespace pilotfish {

class Workers {
 public:
  // The caller of run() counts as one of num_threads, at most Parallel::kMaxWorkers.
  explicit Workers(int64_t num_threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // The process's workers of this number; they end with their last owner.
  static std::shared_ptr<Workers> shared(int64_t num_threads);

  // Runs on these threads. The calling thread does not wait for a thread that the system did not let begin.
  Parallel parallel() { return Parallel(launch, this, num_threads_); }

 private:
  // How often threads that wait look again before they let others run, and before they sleep.
  static constexpr int kPausesBeforeYield = 2000;
  static constexpr int kYieldsBeforeSleep = 1000;

  static void launch(void* context, Parallel::Body body, size_t num_workers, void* argument, WeightSpan weight);
  void work(size_t worker);
  // Waits for another job than number `done`, fetching meanwhile, and returns its number.
  uint32_t wait_for_job(uint32_t done, size_t worker, Upcoming::Progress& fetched);

  const int64_t num_threads_;
  Upcoming upcoming_;
  std::mutex busy_;  // of the thread whose job runs

  // The job, written before `entries_` opens.
  Parallel::Body body_ = nullptr;
  void* argument_ = nullptr;
  size_t num_workers_ = 0;
  std::atomic<bool> stopping_{false};

  // The job's number, for those who wait; the same number with how many workers have entered, or that it is closed.
  alignas(64) std::atomic<uint32_t> job_{0};
  alignas(64) std::atomic<uint64_t> entries_{kClosed};
  alignas(64) std::atomic<uint32_t> num_left_{0};
  static constexpr uint64_t kClosed = uint64_t{1} << 31;

  std::vector<std::thread> threads_;
};

}  // namespace pilotfish
