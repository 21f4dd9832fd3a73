// bf16 and fp8 (e4m3: 4 bits of exponent, 3 of fraction, no infinity, largest 448) to and from float, rounding to
// nearest even.
#pragma once

#include <bit>
#include <cstdint>

#include "float16.h"

namespace pilotfish {

// Internal linkage as in float16.h.
static inline float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

static inline uint16_t float_to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x0040);  // NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// As the half with the same bits behind an exponent that is 8 more, so that every byte, subnormals too, is exact.
static inline uint16_t fp8_to_half_bits(uint8_t byte) {
  return static_cast<uint16_t>((byte & 0x80) << 8 | (byte & 0x7f) << 7);
}
inline constexpr float kFp8OfHalf = 256.0f;
static inline float fp8_to_float(uint8_t byte) { return half_to_float(fp8_to_half_bits(byte)) * kFp8OfHalf; }

// Saturates; not for NaN.
static inline uint8_t float_to_fp8(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  constexpr uint32_t kLargest = std::bit_cast<uint32_t>(448.0f);
  const uint32_t magnitude = (bits & 0x7fffffff) < kLargest ? bits & 0x7fffffff : kLargest;
  // Below 2^-6 the steps are 2^-9, as a float's are from 2^14 to 2^15.
  const uint32_t fixed = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f);
  const uint32_t subnormal = fixed - std::bit_cast<uint32_t>(0x1p14f);
  const uint32_t normal = (magnitude + 0x7ffff + (magnitude >> 20 & 1) - (uint32_t{120} << 23)) >> 20;
  return static_cast<uint8_t>((bits >> 24 & 0x80) |
                              (magnitude < std::bit_cast<uint32_t>(0x1p-6f) ? subnormal : normal));
}

}  // namespace pilotfish
