#include "int4_scales.h"

#include "instruction_set.h"
#include "int4_scales_kernels.h"

namespace pilotfish {
namespace {

Int4ScalesKernel int4_scales_kernel() {
  switch (instruction_set()) {
#if defined(__x86_64__)
    case InstructionSet::kAvx512:
      return avx512::kInt4ScalesKernel;
    case InstructionSet::kAvx2:
      return avx2::kInt4ScalesKernel;
#elif defined(__aarch64__)
    case InstructionSet::kI8mm:
    case InstructionSet::kDotprod:
    case InstructionSet::kNeon:
      return neon::kInt4ScalesKernel;
#endif
    default:
      return portable::kInt4ScalesKernel;
  }
}

}  // namespace

void fit_int4_scales(std::span<const float> blocks, std::span<const float> candidates, std::span<float> scales) {
  int4_scales_kernel()(blocks, candidates, scales);
}

}  // namespace pilotfish
