// `fit_int4_scales` for avx512.
#include "int4_scales_run.h"

namespace pilotfish::avx512 {

const Int4ScalesKernel kInt4ScalesKernel = run_int4_scales;

}  // namespace pilotfish::avx512
