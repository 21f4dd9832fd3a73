// `linear` for portable.
#include "dot_portable.h"
#include "linear_multiply.h"

namespace pilotfish::portable {

const LinearKernels kLinearKernels = kThisLinearKernels;

}  // namespace pilotfish::portable
