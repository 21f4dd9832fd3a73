// `fit_int4_scales` for portable.
#include "int4_scales_run.h"

namespace pilotfish::portable {

const Int4ScalesKernel kInt4ScalesKernel = run_int4_scales;

}  // namespace pilotfish::portable
