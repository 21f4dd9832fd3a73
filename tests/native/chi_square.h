// Toy distributions for the tests of acceptance, and the statistic that compares counts with them.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "check.h"

namespace check {

using Probs = std::vector<float>;

// Rows of probabilities as the logits of a verification.
inline std::vector<float> logs(const std::vector<Probs>& rows) {
  std::vector<float> logits;
  for (const Probs& row : rows) {
    for (const float p : row) logits.push_back(p > 0 ? std::log(p) : -std::numeric_limits<float>::infinity());
  }
  return logits;
}

// Pearson's statistic of `total` draws; fails where something impossible was drawn.
inline double chi_square(const std::vector<int>& counts, const Probs& probs, int total) {
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (probs[i] == 0) {
      CHECK_EQ(counts[i], 0);
    } else {
      sum += std::pow(counts[i] - total * probs[i], 2) / (total * probs[i]);
    }
  }
  return sum;
}

inline constexpr double kChiSquareLimit = 20.5;  // 5 degrees of freedom, p = 0.001

}  // namespace check
