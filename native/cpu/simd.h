// Sixteen float lanes with one meaning on every instruction set: a kernel written with them gives the same bits
// everywhere, because each operation is a single IEEE operation a lane and reductions have a fixed order. A kernel's
// source is compiled once a set, in a namespace of its own; nothing here has external linkage outside that namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(PILOTFISH_NEON)  // a source file names one of the sets of NEON: neon, dotprod or i8mm
#define PILOTFISH_SIMD PILOTFISH_NEON
#include "simd_neon.h"
#elif defined(__AVX512VNNI__)
#define PILOTFISH_SIMD avx512
#include "simd_avx512.h"
#elif defined(__AVX2__)
#define PILOTFISH_SIMD avx2
#include "simd_avx2.h"
#else
#define PILOTFISH_SIMD portable
#include "simd_portable.h"
#endif

namespace pilotfish::PILOTFISH_SIMD {

inline constexpr int kLanes = 16;

// exp(x) to about 1 ulp: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor polynomial of degree 7 in r, then 2^n. Exactly 0 below
// -87.33 (where the result would be subnormal); inputs above 88 give exp(88). NaN stays NaN: max and min give their
// second operand then.
inline Floats exp(Floats x) {
  const Floats bounded = min(broadcast(88.0f), max(broadcast(-87.33f), x));
  const Floats n = round(mul(bounded, broadcast(1.44269504f)));
  const Floats r = fma(n, broadcast(2.12194440e-4f), fma(n, broadcast(-0.693359375f), bounded));
  Floats p = broadcast(1.0f / 5040);
  p = fma(p, r, broadcast(1.0f / 720));
  p = fma(p, r, broadcast(1.0f / 120));
  p = fma(p, r, broadcast(1.0f / 24));
  p = fma(p, r, broadcast(1.0f / 6));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  return zero_where_less(x, broadcast(-87.33f), mul(p, power_of_two(n)));
}

}  // namespace pilotfish::PILOTFISH_SIMD
