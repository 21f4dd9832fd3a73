// `linear` for dotprod.
#define PILOTFISH_NEON dotprod

#include "dot_dotprod.h"

namespace pilotfish::dotprod {

template <WeightFormat kFormat, int kRows>
using DotInteger = DotLanes<kFormat, kRows>;

}  // namespace pilotfish::dotprod

#include "linear_multiply.h"

namespace pilotfish::dotprod {

const LinearKernels kLinearKernels = kThisLinearKernels;

}  // namespace pilotfish::dotprod
