// `linear` for neon.
#define PILOTFISH_NEON neon

#include "dot_neon.h"
#include "linear_multiply.h"

namespace pilotfish::neon {

const LinearKernels kLinearKernels = kThisLinearKernels;

}  // namespace pilotfish::neon
