// `fit_int4_scales` for neon.
#define PILOTFISH_NEON neon
#include "int4_scales_run.h"

namespace pilotfish::neon {

const Int4ScalesKernel kInt4ScalesKernel = run_int4_scales;

}  // namespace pilotfish::neon
