// How the elements of each type of cache become floats: sixteen at a time, or one. Those with scales are multiples.
#pragma once

#include "attention_kernels.h"
#include "simd.h"
#include "small_floats.h"

namespace pilotfish::PILOTFISH_SIMD {

template <CacheType kType>
struct CacheElement;

template <>
struct CacheElement<CacheType::kF32> {
  using Stored = float;
  static Floats load(const float* from) { return PILOTFISH_SIMD::load(from); }
  static float one(float value) { return value; }
};

template <>
struct CacheElement<CacheType::kF16> {
  using Stored = uint16_t;
  static Floats load(const uint16_t* from) { return load_halves(from); }
  static float one(uint16_t value) { return half_to_float(value); }
};

template <>
struct CacheElement<CacheType::kBf16> {
  using Stored = uint16_t;
  static Floats load(const uint16_t* from) { return load_bfloats(from); }
  static float one(uint16_t value) { return bfloat_to_float(value); }
};

template <>
struct CacheElement<CacheType::kInt8> {
  using Stored = uint8_t;
  static Floats load(const uint8_t* from) { return sub(load_bytes(from), broadcast(kByteOffset)); }
  static float one(uint8_t value) { return static_cast<float>(value - kByteOffset); }
};

template <>
struct CacheElement<CacheType::kFp8> {
  using Stored = uint8_t;
  static Floats load(const uint8_t* from) { return load_fp8(from); }
  static float one(uint8_t value) { return fp8_to_float(value); }
};

// Calls work.operator()<type>().
template <class Work>
inline void for_cache(CacheType type, const Work& work) {
  switch (type) {
    case CacheType::kF16:
      return work.template operator()<CacheType::kF16>();
    case CacheType::kF32:
      return work.template operator()<CacheType::kF32>();
    case CacheType::kBf16:
      return work.template operator()<CacheType::kBf16>();
    case CacheType::kInt8:
      return work.template operator()<CacheType::kInt8>();
    case CacheType::kFp8:
      return work.template operator()<CacheType::kFp8>();
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
