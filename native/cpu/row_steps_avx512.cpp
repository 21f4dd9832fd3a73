// `row_steps` for avx512.
#include "row_steps_run.h"

namespace pilotfish::avx512 {

const RowStepsKernel kRowStepsKernel = run_row_steps;

}  // namespace pilotfish::avx512
