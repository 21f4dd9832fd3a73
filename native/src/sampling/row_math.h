// Passes over one row of logits, written so that every instruction set gives the same bits: sixteen running lanes,
// added up in one fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pilotfish {

struct Peak {
  float value;
  int32_t index;  // the lowest one that has the value
};

// Of a row that is not empty. A NaN is passed over.
Peak find_peak(std::span<const float> row);

// Whether a softmax of the row is one of numbers: it holds no NaN and no infinity, and more than minus infinities.
bool are_numbers(std::span<const float> row);

// sum of exp((x - peak) * scale); NaN when the row holds one.
float exp_sum(std::span<const float> row, float peak, float scale);
// The same, and out[i] = exp((row[i] - peak) * scale). `out` has row.size() elements.
float exp_into(std::span<const float> row, float peak, float scale, float* out);

// The sum of w = exp(l), and that of w * l, where l = (x - peak) * scale.
struct ExpMoments {
  float sum;
  float weighted;
};
ExpMoments exp_moments(std::span<const float> row, float peak, float scale);

// out[i] = row[i] where bit i of the mask (lowest first in each word) is set, and -inf elsewhere.
void copy_masked(std::span<const float> row, const uint32_t* mask, float* out);

// out[i] = max(out[i] - factor * other[i], 0); returns the sum of out.
float subtract_positive(std::span<float> out, const float* other, float factor);
void multiply(std::span<float> values, float factor);

inline constexpr size_t kPeakBlock = 64;
// peaks[b] = the largest of row[64 b .. 64 b + 63]. `peaks` has ceil(row.size() / 64) elements. False where the row
// holds a NaN, which is passed over.
bool block_peaks(std::span<const float> row, float* peaks);

}  // namespace pilotfish
