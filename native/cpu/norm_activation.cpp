#include "norm_activation.h"

#include <cmath>

namespace pilotfish {
namespace {

// Sum of value(column). Column k adds to partial sum k % 16; the 16 are then added as a tree.
template <typename Value>
float sum_columns(int64_t num_columns, const Value& value) {
  constexpr int64_t kLanes = 16;
  float sums[kLanes] = {};
  int64_t column = 0;
  for (; column + kLanes <= num_columns; column += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += value(column + lane);
  }
  for (int64_t lane = 0; column + lane < num_columns; ++lane) sums[lane] += value(column + lane);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

// (x - mean) * factor is the row's norm.
struct Moments {
  float mean, factor;
};

Moments moments_of(const RowNorm& norm, const float* x) {
  if (norm.settings.norm == NormKind::kNone) return {0.0f, 1.0f};
  const auto count = static_cast<float>(norm.num_columns);
  const bool is_centred = norm.settings.norm == NormKind::kLayer;
  const float mean = is_centred ? sum_columns(norm.num_columns, [x](int64_t k) { return x[k]; }) / count : 0.0f;
  const float squares = sum_columns(norm.num_columns, [x, mean](int64_t k) { return (x[k] - mean) * (x[k] - mean); });
  return {mean, 1.0f / std::sqrt(squares / count + norm.settings.epsilon)};
}

float activated(RowActivation activation, float x) {
  switch (activation) {
    case RowActivation::kSilu:
      return x / (1.0f + std::exp(-x));
    case RowActivation::kGelu:
      return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
    case RowActivation::kNone:
      break;
  }
  return x;
}

}  // namespace

void norm_activation(const RowNorm& norm, const float* x, const float* residual, float* out) {
  const auto [mean, factor] = moments_of(norm, x);
  for (int64_t k = 0; k < norm.num_columns; ++k) {
    float value = (x[k] - mean) * factor;
    if (norm.weight != nullptr) value *= norm.weight[k];
    if (norm.bias != nullptr) value += norm.bias[k];
    out[k] = value;
  }
  if (norm.settings.activation != RowActivation::kNone) {
    for (int64_t k = 0; k < norm.num_columns; ++k) out[k] = activated(norm.settings.activation, out[k]);
  }
  if (residual == nullptr) return;
  for (int64_t k = 0; k < norm.num_columns; ++k) out[k] += residual[k];
}

}  // namespace pilotfish
