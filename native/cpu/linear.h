// y = W * rms_norm(x) + bias (+ residual), optionally through SwiGLU: the operator Linear of GRAPH.md on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "packed_weights.h"
#include "parallel.h"

namespace pilotfish {

enum class Activation { kNone, kSwiglu };

struct LinearWeights {
  WeightFormat format;
  Activation activation;
  int64_t in_features;
  int64_t out_features;      // rows of W; with SwiGLU twice the columns of y
  const std::byte* packed;   // packed_bytes(format, out_features, in_features)
  const float* bias;         // [out_features] or nullptr
  const float* norm_weight;  // [in_features] or nullptr: no norm
  float norm_epsilon;

  int64_t num_outputs() const { return activation == Activation::kSwiglu ? out_features / 2 : out_features; }
};

struct LinearRows {
  int64_t num_rows;
  const float* x;         // [num_rows, in_features]
  const float* residual;  // [num_rows, num_outputs] or nullptr
  float* y;               // [num_rows, num_outputs]
};

// A row of y depends on its row of x alone, by bits. Int formats have the same bits on every instruction set.
void linear(const LinearWeights& weights, const LinearRows& rows, const Parallel& parallel);

}  // namespace pilotfish
