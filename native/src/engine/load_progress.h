// How far a load is: threads that read files add to it, and the thread that loads tells the caller's function. It
// outlives what an engine that fails to load takes down.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "bundle/manifest.h"
#include "pilotfish.h"

namespace pilotfish {

class LoadProgress {
 public:
  explicit LoadProgress(const pf_engine_options& options);
  LoadProgress(LoadProgress&&) = delete;

  // Of which there will be so many: those of all weights.
  void expect(const Manifest& manifest) noexcept;
  // Bytes of weights that have been read.
  std::atomic<uint64_t>& num_read() noexcept { return num_read_; }
  // Calls the function now. Throws PF_CALLBACK_FAILED where it ends the load.
  void tell(pf_load_stage stage);
  // The same unless it was called a moment ago.
  void tell_now_and_then(pf_load_stage stage);

 private:
  using Clock = std::chrono::steady_clock;

  const pf_progress_callback callback_;  // or nullptr
  void* const user_;
  uint64_t num_bytes_ = 0;
  std::atomic<uint64_t> num_read_{0};
  Clock::time_point last_told_ = Clock::now();
};

}  // namespace pilotfish
