// What a pass of each model takes on this machine, by rows and context. Plain numbers: calibration.h measures them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace pilotfish {

// Seconds of passes of one model, measured at some row counts and two context lengths, linear in between and beyond.
struct PassCosts {
  std::vector<int32_t> rows;                   // ascending, at least one
  std::array<int32_t, 2> contexts;             // ascending
  std::array<std::vector<double>, 2> seconds;  // [contexts][rows]

  double at(int32_t num_rows, int32_t context) const noexcept;
  // Makes a pass of more rows cost no less than one of fewer, changing as little as possible in the sense of least
  // squares: what was measured the other way round was noise.
  void smooth();
};

struct RoundCosts {
  PassCosts verify;
  std::optional<PassCosts> draft;  // none: no draft model
  bool is_measured;                // false: guessed from the bytes of the weights

  // A further row costs 0.08 of a pass of one row, and passes are to each other as the bytes that they read.
  static RoundCosts guess(uint64_t target_pass_bytes, uint64_t draft_pass_bytes);
};

}  // namespace pilotfish
