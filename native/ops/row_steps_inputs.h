// What the operators RowSteps of both devices share: inputs, attributes and checks.
#pragma once

#include <array>

#include "base/row_program.h"
#include "kernel_io.h"
#include "operator_base.h"

namespace pilotfish {

inline constexpr std::array<InputSpec, kMostRowInputs> kRowStepInputs = [] {
  std::array<InputSpec, kMostRowInputs> inputs;
  inputs.fill({ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true});
  inputs[0].is_optional = false;
  return inputs;
}();

RowProgram read_row_program(const KernelInfo& info);

// Throws unless `input`, the i-th, is as the program says: rows as many as num_rows, or a vector.
void require_row_input(const RowProgram& program, size_t i, const Tensor& input, int64_t num_rows);

}  // namespace pilotfish
