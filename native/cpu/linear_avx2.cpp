// `linear` for avx2.
#include "dot_avx2.h"
#include "linear_multiply.h"

namespace pilotfish::avx2 {

const LinearKernels kLinearKernels = kThisLinearKernels;

}  // namespace pilotfish::avx2
