// `linear` for i8mm.
#define PILOTFISH_NEON i8mm

#include "dot_i8mm.h"
#include "linear_multiply.h"

namespace pilotfish::i8mm {

const LinearKernels kLinearKernels = kThisLinearKernels;

}  // namespace pilotfish::i8mm
