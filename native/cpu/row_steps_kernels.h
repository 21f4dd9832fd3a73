// What one instruction set implements of `row_steps`.
#pragma once

#include <array>
#include <cstdint>

#include "base/row_program.h"

namespace pilotfish {

// Where a row's values are.
struct RowPlaces {
  std::array<const float*, kMostRowInputs> inputs;
  std::array<float*, kMostRowOutputs> outputs;
  float* scratch;  // [num_scratch]
};

// All steps of a row; of a columnwise program those of columns [first, first + count) alone, count <= kRowChunkColumns.
// Other programs have first 0.
using RowStepsKernel = void (*)(const RowProgram& program, const RowPlaces& places, int64_t first, int64_t count);

namespace avx512 {
extern const RowStepsKernel kRowStepsKernel;
}
namespace avx2 {
extern const RowStepsKernel kRowStepsKernel;
}
namespace neon {
extern const RowStepsKernel kRowStepsKernel;
}
namespace portable {
extern const RowStepsKernel kRowStepsKernel;
}

}  // namespace pilotfish
