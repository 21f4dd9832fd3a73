// simd.h in plain C++: loops of constant length that a compiler may vectorise for whatever it targets.
#pragma once

#include <bit>
#include <cmath>

#include "float16.h"

namespace pilotfish::portable {

struct Floats {
  float lane[16];
};

template <typename Operation>
inline Floats make(Operation operation) {
  Floats result;
  for (int l = 0; l < 16; ++l) result.lane[l] = operation(l);
  return result;
}

inline Floats zeros() { return {}; }
inline Floats broadcast(float value) {
  return make([&](int) { return value; });
}
inline Floats load(const float* from) {
  return make([&](int l) { return from[l]; });
}
inline void store(float* to, Floats value) {
  for (int l = 0; l < 16; ++l) to[l] = value.lane[l];
}
// The first `count` lanes, 0..16; the others are 0.
inline Floats load_first(const float* from, int64_t count) {
  return make([&](int l) { return l < count ? from[l] : 0.0f; });
}
inline void store_first(float* to, Floats value, int64_t count) {
  for (int64_t l = 0; l < count; ++l) to[l] = value.lane[l];
}
inline Floats load_halves(const uint16_t* from) {
  return make([&](int l) { return half_to_float(from[l]); });
}
inline void store_halves(uint16_t* to, Floats value) {
  for (int l = 0; l < 16; ++l) to[l] = float_to_half(value.lane[l]);
}
inline Floats load_bytes(const uint8_t* from) {
  return make([&](int l) { return static_cast<float>(from[l]); });
}

inline Floats add(Floats a, Floats b) {
  return make([&](int l) { return a.lane[l] + b.lane[l]; });
}
inline Floats sub(Floats a, Floats b) {
  return make([&](int l) { return a.lane[l] - b.lane[l]; });
}
inline Floats mul(Floats a, Floats b) {
  return make([&](int l) { return a.lane[l] * b.lane[l]; });
}
inline Floats div(Floats a, Floats b) {
  return make([&](int l) { return a.lane[l] / b.lane[l]; });
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return make([&](int l) { return std::fma(a.lane[l], b.lane[l], c.lane[l]); });
}
inline Floats max(Floats a, Floats b) {
  return make([&](int l) { return a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l]; });
}
inline Floats min(Floats a, Floats b) {
  return make([&](int l) { return a.lane[l] < b.lane[l] ? a.lane[l] : b.lane[l]; });
}
inline Floats abs(Floats a) {
  return make([&](int l) { return std::fabs(a.lane[l]); });
}
// To the nearest integer, halves to even; |a| < 2^22, where adding 1.5 * 2^23 leaves no fraction bits.
inline Floats round(Floats a) {
  return make([&](int l) { return (a.lane[l] + 12582912.0f) - 12582912.0f; });
}
inline Floats power_of_two(Floats n) {
  return make([&](int l) {
    const float exponent = n.lane[l] == n.lane[l] ? n.lane[l] : 0.0f;  // of NaN any
    return std::bit_cast<float>((static_cast<int32_t>(exponent) + 127) << 23);
  });
}
inline Floats zero_where_less(Floats x, Floats limit, Floats value) {
  return make([&](int l) { return x.lane[l] < limit.lane[l] ? 0.0f : value.lane[l]; });
}

// Pairs lane l with l + 8, then l + 4, l + 2, l + 1.
inline float sum_lanes(Floats value) {
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) value.lane[l] = value.lane[l] + value.lane[l + half];
  }
  return value.lane[0];
}
// Of all lanes; NaN where one is. As integers the bits of magnitudes are ordered like these, with NaN above infinity.
inline float largest_magnitude(Floats a, Floats b) {
  int32_t largest = 0;
  for (int l = 0; l < 16; ++l) {
    for (const float lane : {a.lane[l], b.lane[l]}) {
      const int32_t bits = std::bit_cast<int32_t>(std::fabs(lane));
      largest = bits > largest ? bits : largest;
    }
  }
  return std::bit_cast<float>(largest);
}
inline float max_lane(Floats value) {
  float largest = value.lane[0];
  for (const float lane : value.lane) largest = lane > largest ? lane : largest;
  return largest;
}

// Writes integral lanes of -127..127 as bytes and returns their sum.
inline int32_t store_bytes(int8_t* to, Floats value) {
  int32_t sum = 0;
  for (int l = 0; l < 16; ++l) {
    to[l] = static_cast<int8_t>(value.lane[l]);
    sum += to[l];
  }
  return sum;
}

}  // namespace pilotfish::portable
