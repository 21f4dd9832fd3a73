// IEEE half precision to and from float without hardware support; the same bits as F16C (round to nearest even).
#pragma once

#include <bit>
#include <cstdint>

namespace pilotfish {

// Internal linkage: files built for different instruction sets must not share one copy.
static inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  if (magnitude >= 0x0f800000) return std::bit_cast<float>(sign | 0x70000000 | magnitude);  // infinity, NaN
  if (magnitude < 0x00800000) {                                                             // zero, subnormal
    const float value = static_cast<float>(half & 0x03ff) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | (magnitude + 0x38000000));
}

static inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x03ff));  // NaN
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to infinity
  if (magnitude < 0x38800000) {  // below the smallest normal half: adding 0.5 leaves the rounded multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0x0fff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

}  // namespace pilotfish
