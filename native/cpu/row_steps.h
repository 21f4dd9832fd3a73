// Runs the programs of RowSteps. A row's bits do not depend on how many rows there are.
#pragma once

#include <array>
#include <cstdint>

#include "base/row_program.h"
#include "parallel.h"

namespace pilotfish {

struct RowTensors {
  int64_t num_rows;
  std::array<const float*, kMostRowInputs> inputs;  // [num_rows, width], then vectors [width]
  std::array<float*, kMostRowOutputs> outputs;      // [num_rows, width]
};

void row_steps(const RowProgram& program, const RowTensors& tensors, const Parallel& parallel);

}  // namespace pilotfish
