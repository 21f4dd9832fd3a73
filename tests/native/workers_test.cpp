// Workers: every task once whatever the number of threads, of tasks and of callers; shared by number; ends after sleep.
#include "workers.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"

namespace pilotfish {
namespace {

// Runs jobs of 0, 1, ... num_jobs - 1 tasks and counts how often each task ran.
void run_jobs(Workers& workers, int64_t num_jobs) {
  for (int64_t num_tasks = 0; num_tasks < num_jobs; ++num_tasks) {
    std::vector<std::atomic<int>> runs(num_tasks);
    workers.parallel().run(num_tasks, [&](int64_t task) { runs[task].fetch_add(1, std::memory_order_relaxed); });
    for (const std::atomic<int>& count : runs) CHECK_EQ(count.load(), 1);
  }
}

void every_task_runs_once() {
  for (const int64_t num_threads : {1, 2, 3, 8}) {
    Workers workers(num_threads);
    CHECK_EQ(workers.parallel().num_workers(), num_threads);
    run_jobs(workers, 200);
  }
}

void callers_may_meet() {
  Workers workers(3);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) callers.emplace_back([&] { run_jobs(workers, 200); });
  for (std::thread& caller : callers) caller.join();
}

void sleepers_wake_for_a_job_and_for_the_end() {
  Workers workers(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    run_jobs(workers, 20);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
}

void weights_are_fetched_in_the_order_learnt() {
  Workers workers(2);
  const std::vector<std::byte> first(1 << 20), second(3000);
  for (int pass = 0; pass < 3; ++pass) {
    for (const std::vector<std::byte>* weight : {&first, &second}) {
      std::atomic<int> count{0};
      workers.parallel().run(5, [&](int64_t) { count.fetch_add(1); }, {weight->data(), weight->size()});
      CHECK_EQ(count.load(), 5);
    }
  }
}

void the_same_number_shares_threads() {
  const std::shared_ptr<Workers> two = Workers::shared(2), three = Workers::shared(3);
  CHECK(two == Workers::shared(2));
  CHECK(two != three);
  CHECK_EQ(two.use_count(), 1);
}

}  // namespace
}  // namespace pilotfish

int main() {
  pilotfish::every_task_runs_once();
  pilotfish::callers_may_meet();
  pilotfish::sleepers_wake_for_a_job_and_for_the_end();
  pilotfish::weights_are_fetched_in_the_order_learnt();
  pilotfish::the_same_number_shares_threads();
  return check::result();
}
