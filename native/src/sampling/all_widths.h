// at_best_width(body) is body(), compiled for each width of vectors and run with the widest that the processor has. The
// body is a lambda marked PF_INLINED; what it calls must be inlined into it (PF_INLINE). Arithmetic is not contracted
// (CMakeLists.txt), so that all widths give the same bits.
#pragma once

#include "base/x86_features.h"

#define PF_INLINED __attribute__((always_inline))
#define PF_INLINE PF_INLINED inline

namespace pilotfish {

#if defined(__x86_64__)
template <typename Body>
__attribute__((target("avx512f"))) auto run_with_avx512(const Body& body) {
  return body();
}

template <typename Body>
__attribute__((target("avx2"))) auto run_with_avx2(const Body& body) {
  return body();
}

template <typename Body>
auto at_best_width(const Body& body) {
  if (x86_features().avx512) return run_with_avx512(body);
  if (x86_features().avx2) return run_with_avx2(body);
  return body();
}
#else
template <typename Body>
auto at_best_width(const Body& body) {
  return body();
}
#endif

}  // namespace pilotfish
