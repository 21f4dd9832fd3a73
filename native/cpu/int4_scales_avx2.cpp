// `fit_int4_scales` for avx2.
#include "int4_scales_run.h"

namespace pilotfish::avx2 {

const Int4ScalesKernel kInt4ScalesKernel = run_int4_scales;

}  // namespace pilotfish::avx2
