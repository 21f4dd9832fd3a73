// What the tests of a round's kernels share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gpu_test.h"
#include "kernels.h"

namespace pilotfish::cuda::test {

inline int failures = 0;

inline void expect(bool ok, const std::string& what) {
  if (ok) return;
  ++failures;
  std::printf("FAILED %s\n", what.c_str());
}

/// Memory of as many rounds as there are settings.
struct Rounds {
  explicit Rounds(const std::vector<RoundSettings>& all, int num_logits)
      : settings(all),
        outcomes(all.size()),
        parts(size_t{kMaxRoundRows} * num_row_parts(num_logits)),
        arrivals(std::vector<int32_t>{0}),
        rows(kMaxRoundRows),
        pass(std::vector<int32_t>(8 * kMaxRoundRows, 0)) {}

  RoundMemory memory(size_t round = 0) const {
    return {settings.get() + round, outcomes.get() + round, parts.get(), arrivals.get(), rows.get()};
  }
  PassInputs inputs() const {
    int32_t* const first = pass.get();
    return {first, first + 64, first + 128, first + 192, first + 256};
  }
  int32_t* target_ids() const { return pass.get() + 320; }

  DeviceArray<RoundSettings> settings;
  DeviceArray<RoundOutcome> outcomes;
  DeviceArray<RowPart> parts;
  DeviceArray<int32_t> arrivals;
  DeviceArray<RowDistribution> rows;
  DeviceArray<int32_t> pass;
};

inline RoundSettings settings_of(float temperature, int top_k, float top_p, float min_p, uint64_t seed) {
  return {.first_position = 11,
          .draft_position = 7,
          .inverse_temperature = 1 / temperature,
          .top_k = top_k,
          .top_p = top_p,
          .min_p = min_p,
          .key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}};
}

/// Few different values, so that many logits tie.
inline std::vector<float> coarse_logits(size_t count, uint64_t seed) {
  std::vector<float> values = random_floats(count, seed);
  for (float& value : values) value = std::round(value * 4) / 4;
  return values;
}

inline double log_sum(const float* row, int count) {
  const double peak = *std::max_element(row, row + count);
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += std::exp(row[i] - peak);
  return peak + std::log(sum);
}

}  // namespace pilotfish::cuda::test
