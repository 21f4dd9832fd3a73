// simd.h on Arm's NEON, which every 64-bit Arm processor has. Compiled once for each set that differs in its dot
// products, in a namespace of its own.
#pragma once

#include <arm_neon.h>

#include "float16.h"

namespace pilotfish::PILOTFISH_SIMD {

struct Floats {
  float32x4_t part[4];
};

template <typename Operation>
inline Floats make(Operation operation) {
  return {{operation(0), operation(1), operation(2), operation(3)}};
}

inline Floats broadcast(float value) {
  return make([&](int) { return vdupq_n_f32(value); });
}
inline Floats zeros() { return broadcast(0.0f); }
inline Floats load(const float* from) {
  return make([&](int i) { return vld1q_f32(from + 4 * i); });
}
inline void store(float* to, Floats value) {
  for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, value.part[i]);
}

// The first `count` lanes, 0..16; the others are 0.
inline Floats load_first(const float* from, int64_t count) {
  alignas(64) float lanes[16] = {};
  for (int64_t lane = 0; lane < count; ++lane) lanes[lane] = from[lane];
  return load(lanes);
}
inline void store_first(float* to, Floats value, int64_t count) {
  alignas(64) float lanes[16];
  store(lanes, value);
  for (int64_t lane = 0; lane < count; ++lane) to[lane] = lanes[lane];
}

inline Floats load_halves(const uint16_t* from) {
  return make([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + 4 * i))); });
}
inline void store_halves(uint16_t* to, Floats value) {
  for (int i = 0; i < 4; ++i) vst1_u16(to + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(value.part[i])));
}
inline Floats load_bytes(const uint8_t* from) {
  const uint8x16_t bytes = vld1q_u8(from);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
  return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
           vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))}};
}

inline Floats add(Floats a, Floats b) {
  return make([&](int i) { return vaddq_f32(a.part[i], b.part[i]); });
}
inline Floats sub(Floats a, Floats b) {
  return make([&](int i) { return vsubq_f32(a.part[i], b.part[i]); });
}
inline Floats mul(Floats a, Floats b) {
  return make([&](int i) { return vmulq_f32(a.part[i], b.part[i]); });
}
inline Floats div(Floats a, Floats b) {
  return make([&](int i) { return vdivq_f32(a.part[i], b.part[i]); });
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return make([&](int i) { return vfmaq_f32(c.part[i], a.part[i], b.part[i]); });
}
// Arm's own maximum and minimum give NaN where either operand is one; here it is the second operand, as elsewhere.
inline float32x4_t max(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Floats max(Floats a, Floats b) {
  return make([&](int i) { return max(a.part[i], b.part[i]); });
}
inline Floats min(Floats a, Floats b) {
  return make([&](int i) { return vbslq_f32(vcltq_f32(a.part[i], b.part[i]), a.part[i], b.part[i]); });
}
inline Floats abs(Floats a) {
  return make([&](int i) { return vabsq_f32(a.part[i]); });
}
// To the nearest integer, halves to even; |a| < 2^22.
inline Floats round(Floats a) {
  return make([&](int i) { return vrndnq_f32(a.part[i]); });
}
inline Floats power_of_two(Floats n) {
  return make([&](int i) {
    const int32x4_t biased = vaddq_s32(vcvtnq_s32_f32(n.part[i]), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
  });
}
inline Floats zero_where_less(Floats x, Floats limit, Floats value) {
  return make([&](int i) {
    const uint32x4_t bits = vreinterpretq_u32_f32(value.part[i]);
    return vreinterpretq_f32_u32(vbicq_u32(bits, vcltq_f32(x.part[i], limit.part[i])));
  });
}

// Pairs lane l with l + 8, then l + 4, l + 2, l + 1.
inline float sum_lanes(Floats value) {
  const float32x4_t four = vaddq_f32(vaddq_f32(value.part[0], value.part[2]), vaddq_f32(value.part[1], value.part[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
// Of all lanes; NaN where one is. As integers the bits of magnitudes are ordered like these, with NaN above infinity.
inline float largest_magnitude(Floats a, Floats b) {
  const auto magnitudes = [](float32x4_t value) { return vreinterpretq_u32_f32(vabsq_f32(value)); };
  uint32x4_t largest = vdupq_n_u32(0);
  for (int i = 0; i < 4; ++i) {
    largest = vmaxq_u32(largest, vmaxq_u32(magnitudes(a.part[i]), magnitudes(b.part[i])));
  }
  return vget_lane_f32(vreinterpret_f32_u32(vdup_n_u32(vmaxvq_u32(largest))), 0);
}
inline float max_lane(Floats value) {
  const float32x4_t four = max(max(value.part[0], value.part[2]), max(value.part[1], value.part[3]));
  const float32x4_t two = max(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(max(two, vextq_f32(two, two, 1)), 0);
}

// Writes integral lanes of -127..127 as bytes and returns their sum.
inline int32_t store_bytes(int8_t* to, Floats value) {
  int32x4_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = vcvtnq_s32_f32(value.part[i]);
  const int16x8_t low = vmovn_high_s32(vmovn_s32(words[0]), words[1]);
  const int16x8_t high = vmovn_high_s32(vmovn_s32(words[2]), words[3]);
  vst1q_s8(to, vmovn_high_s16(vmovn_s16(low), high));
  return vaddvq_s32(vaddq_s32(vaddq_s32(words[0], words[1]), vaddq_s32(words[2], words[3])));
}

}  // namespace pilotfish::PILOTFISH_SIMD
