// `linear` for avx512.
#include "dot_avx512.h"
#include "linear_multiply.h"

namespace pilotfish::avx512 {

const LinearKernels kLinearKernels = kThisLinearKernels;

}  // namespace pilotfish::avx512
