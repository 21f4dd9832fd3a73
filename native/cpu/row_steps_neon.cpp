// `row_steps` for neon.
#define PILOTFISH_NEON neon
#include "row_steps_run.h"

namespace pilotfish::neon {

const RowStepsKernel kRowStepsKernel = run_row_steps;

}  // namespace pilotfish::neon
