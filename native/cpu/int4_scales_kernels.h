// What one instruction set implements of `fit_int4_scales`.
#pragma once

#include <span>

namespace pilotfish {

using Int4ScalesKernel = void (*)(std::span<const float> blocks, std::span<const float> candidates,
                                  std::span<float> scales);

namespace avx512 {
extern const Int4ScalesKernel kInt4ScalesKernel;
}
namespace avx2 {
extern const Int4ScalesKernel kInt4ScalesKernel;
}
namespace neon {
extern const Int4ScalesKernel kInt4ScalesKernel;
}
namespace portable {
extern const Int4ScalesKernel kInt4ScalesKernel;
}

}  // namespace pilotfish
