// How many tokens of a prompt run between the rounds of others, so that these wait for them no longer than they are to.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pilotfish {

// Follows what chunks take: one that was too slow makes the next one smaller at once, one that was faster than it might
// be makes the next ones larger by and by.
class PromptPace {
 public:
  static constexpr int32_t kLeastRows = 4;  // costs little more than one; what takes longer holds others up longer

  // most_seconds: of a chunk; 0: no bound. row_seconds: a guess at what a row takes.
  PromptPace(double most_seconds, int32_t most_rows, double row_seconds) noexcept
      : aim_(kAim * most_seconds), most_rows_(most_rows), rows_(bounded(aim_ / std::max(row_seconds, 1e-9))) {}

  bool is_bound() const noexcept { return aim_ > 0; }
  // Of the next chunk.
  int32_t num_rows() const noexcept { return is_bound() ? static_cast<int32_t>(rows_) : most_rows_; }

  // What a chunk took. One that was smaller than num_rows(), a prompt's last, says nothing of larger ones.
  void record(int32_t num_rows, double seconds) noexcept {
    if (num_rows < this->num_rows()) return;
    const double fitting = rows_ * std::min(aim_ / std::max(seconds, 1e-9), kMostGrowth);
    rows_ = bounded(fitting < rows_ ? fitting : (1 - kNews) * rows_ + kNews * fitting);
  }

 private:
  static constexpr double kAim = 0.85;  // of the bound: passes of one size differ that much
  static constexpr double kNews = 0.3;
  static constexpr double kMostGrowth = 2;

  double bounded(double rows) const noexcept {
    return std::clamp<double>(rows, std::min(kLeastRows, most_rows_), most_rows_);
  }

  const double aim_;
  const int32_t most_rows_;
  double rows_;
};

}  // namespace pilotfish
