// The k largest numbers of a row, for drafters that propose the likeliest tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/row_math.h"

namespace pilotfish {

class Likeliest {
 public:
  static constexpr int32_t kMost = 64;

  explicit Likeliest(size_t max_row) { block_peaks_.reserve((max_row + kPeakBlock - 1) / kPeakBlock); }

  // The `count` largest, at most kMost and no more than the row has above minus infinity, in order; of equal ones the
  // lower index first. Valid until the next call.
  std::span<const Peak> find(std::span<const float> row, int32_t count);

 private:
  std::vector<float> block_peaks_;  // of what is not found yet
  std::array<Peak, kMost> found_;
};

}  // namespace pilotfish
