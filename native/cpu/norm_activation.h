// The norm of a row, an activation of it and a residual: the operator NormActivation of GRAPH.md.
#pragma once

#include <cstdint>

#include "base/norm_activation.h"

namespace pilotfish {

struct RowNorm {
  NormSettings settings;
  int64_t num_columns;
  const float* weight;  // [num_columns] or nullptr: ones
  const float* bias;    // [num_columns] or nullptr: zeros
};

// out = activation(norm(x) * weight + bias) + residual, each [num_columns]; residual may be nullptr. In f32, in an
// order that the number of columns alone decides, whatever the processor.
void norm_activation(const RowNorm& norm, const float* x, const float* residual, float* out);

}  // namespace pilotfish
