// `row_steps` for avx2.
#include "row_steps_run.h"

namespace pilotfish::avx2 {

const RowStepsKernel kRowStepsKernel = run_row_steps;

}  // namespace pilotfish::avx2
