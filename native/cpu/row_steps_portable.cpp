// `row_steps` for portable.
#include "row_steps_run.h"

namespace pilotfish::portable {

const RowStepsKernel kRowStepsKernel = run_row_steps;

}  // namespace pilotfish::portable
