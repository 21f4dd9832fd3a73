// Functions of a step's elements, sixteen at a time. Written with simd.h only, so that each has the same bits on every
// instruction set; errors are against exact arithmetic.
#pragma once

#include <cmath>
#include <initializer_list>  // which simd_portable.h uses

#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

template <int kCount>
Floats polynomial(Floats x, const float (&coefficients)[kCount]) {
  Floats sum = broadcast(coefficients[0]);
  for (int i = 1; i < kCount; ++i) sum = fma(sum, x, broadcast(coefficients[i]));
  return sum;
}

// 1 where a < b, else 0, also where one is NaN.
inline Floats less(Floats a, Floats b) { return sub(broadcast(1.0f), zero_where_less(a, b, broadcast(1.0f))); }
inline Floats not_less(Floats a, Floats b) { return zero_where_less(a, b, broadcast(1.0f)); }
// c >= 0.5 ? a : b
inline Floats select(Floats a, Floats b, Floats c) {
  const Floats second = zero_where_less(sub(zeros(), c), broadcast(-0.49999997f), b);
  return add(zero_where_less(c, broadcast(0.5f), a), second);
}

// Within 2 ulp.
inline Floats sigmoid(Floats x) { return div(broadcast(1.0f), add(broadcast(1.0f), exp(sub(zeros(), x)))); }

// Within 3 ulp: an odd polynomial where |x| < 0.625, else 1 - 2 / (e^2|x| + 1) with the sign of x.
inline Floats tanh(Floats x) {
  constexpr float kOdd[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f,
                            -3.33332819422e-1f};
  const Floats one = broadcast(1.0f), size = abs(x), square = mul(x, x);
  const Floats small = fma(mul(polynomial(square, kOdd), square), x, x);
  const Floats large = sub(one, div(broadcast(2.0f), add(exp(add(size, size)), one)));
  const Floats is_negative = less(x, zeros());
  const Floats with_sign = sub(large, mul(is_negative, add(large, large)));
  return select(with_sign, small, not_less(size, broadcast(0.625f)));
}

// To an absolute error of 2e-7: an odd polynomial where |x| < 1, else 1 - t P(t) e^-x^2 with t = 1 / (1 + 0.3275911
// |x|) (Abramowitz and Stegun, 7.1.26) with the sign of x.
inline Floats erf(Floats x) {
  constexpr float kOdd[] = {7.853861353153693e-5f,  -8.010193625184903e-4f, 5.188327685732524e-3f,
                            -2.685381193529856e-2f, 1.128358514861418e-1f,  -3.761262582423300e-1f,
                            1.128379165726710f};
  constexpr float kTail[] = {1.061405429f, -1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f};
  const Floats one = broadcast(1.0f), size = abs(x), square = mul(x, x);
  const Floats small = mul(x, polynomial(square, kOdd));
  const Floats t = div(one, fma(size, broadcast(0.3275911f), one));
  const Floats large = sub(one, mul(mul(t, polynomial(t, kTail)), exp(sub(zeros(), square))));
  const Floats is_negative = less(x, zeros());
  const Floats with_sign = sub(large, mul(is_negative, add(large, large)));
  return select(with_sign, small, not_less(size, one));
}

inline Floats gelu(Floats x) {
  const Floats half = mul(x, broadcast(0.5f));
  return fma(half, erf(mul(x, broadcast(0.70710678f))), half);
}

// x sigmoid(2 u), which is x (1 + tanh u) / 2.
inline Floats gelu_tanh(Floats x) {
  const Floats cube = mul(mul(x, x), mul(x, broadcast(0.044715f)));
  return mul(x, sigmoid(mul(add(x, cube), broadcast(1.5957691f))));
}

template <typename Function>
Floats each_lane(Floats x, const Function& function) {
  alignas(64) float lanes[kLanes];
  store(lanes, x);
  for (float& lane : lanes) lane = function(lane);
  return load(lanes);
}

inline Floats sqrt(Floats x) {
  return each_lane(x, [](float lane) { return __builtin_sqrtf(lane); });
}
// The C library's, an element at a time.
inline Floats log(Floats x) {
  return each_lane(x, [](float lane) { return std::log(lane); });
}

}  // namespace pilotfish::PILOTFISH_SIMD
