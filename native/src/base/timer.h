// Adds the time from its making to its end to a counter.
#pragma once

#include <chrono>

namespace pilotfish {

class Timer {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Timer(double& seconds) : seconds_(seconds), start_(Clock::now()) {}
  Timer(Timer&&) = delete;
  ~Timer() { seconds_ += between(start_, Clock::now()); }

  static double between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
  }

 private:
  double& seconds_;
  Clock::time_point start_;
};

}  // namespace pilotfish
