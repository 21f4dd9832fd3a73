// How the elements of each type of cache become floats, sixteen at a time or one, and how a head becomes elements.
// Those with scales are multiples of them.
#pragma once

#include <bit>
#include <cstring>

#include "attention_kernels.h"
#include "float16.h"
#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

template <CacheType kType>
struct CacheElement;

template <>
struct CacheElement<CacheType::kF32> {
  using Stored = float;
  static Floats load(const float* from) { return PILOTFISH_SIMD::load(from); }
  static float one(float value) { return value; }
  static void write(const float* head, int64_t head_dim, float* out, float*) {
    for (int64_t d = 0; d < head_dim; ++d) out[d] = head[d];
  }
};

template <>
struct CacheElement<CacheType::kF16> {
  using Stored = uint16_t;
  static Floats load(const uint16_t* from) { return load_halves(from); }
  static float one(uint16_t value) { return half_to_float(value); }
  static void write(const float* head, int64_t head_dim, uint16_t* out, uint16_t*) {
    int64_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) store_halves(out + d, PILOTFISH_SIMD::load(head + d));
    for (; d < head_dim; ++d) out[d] = float_to_half(head[d]);
  }
};

template <>
struct CacheElement<CacheType::kInt8> {
  using Stored = uint8_t;
  static constexpr int kOffset = 128;  // a byte is so much more than its integer

  static Floats load(const uint8_t* from) { return sub(load_bytes(from), broadcast(kOffset)); }
  static float one(uint8_t value) { return static_cast<float>(value - kOffset); }

  // The scale is the largest magnitude divided by that of an element, as f16, at most f16's largest number; NaN where
  // the head holds one.
  static void write(const float* head, int64_t head_dim, uint8_t* out, uint8_t* scale_out) {
    int32_t most_bits = 0;  // magnitudes' bits are ordered like these, with NaN above infinity
    for (int64_t d = 0; d < head_dim; ++d) {
      const int32_t bits = std::bit_cast<int32_t>(__builtin_fabsf(head[d]));
      most_bits = bits > most_bits ? bits : most_bits;
    }
    const float most = std::bit_cast<float>(most_bits);
    const uint16_t scale = float_to_half((most > 65504.0f ? 65504.0f : most) / kLargestElement);
    std::memcpy(scale_out, &scale, sizeof scale);
    const float inverse = half_to_float(scale) > 0 ? 1.0f / half_to_float(scale) : 0.0f;
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      const int64_t count = head_dim - d < kLanes ? head_dim - d : kLanes;
      const Floats scaled = mul(load_first(head + d, count), broadcast(inverse));
      alignas(64) float integers[kLanes];
      store(integers, round(min(max(scaled, broadcast(-kLargestElement)), broadcast(kLargestElement))));
      for (int64_t i = 0; i < count; ++i) out[d + i] = static_cast<uint8_t>(static_cast<int>(integers[i]) + kOffset);
    }
  }
};

// Calls work.operator()<type>().
template <class Work>
inline void for_cache(CacheType type, const Work& work) {
  switch (type) {
    case CacheType::kF16:
      return work.template operator()<CacheType::kF16>();
    case CacheType::kF32:
      return work.template operator()<CacheType::kF32>();
    case CacheType::kInt8:
      return work.template operator()<CacheType::kInt8>();
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
