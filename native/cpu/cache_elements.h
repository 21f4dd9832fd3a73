// How the elements of each type of cache become floats: sixteen at a time, or one. Those with scales are multiples.
#pragma once

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
};

template <>
struct CacheElement<CacheType::kF16> {
  using Stored = uint16_t;
  static Floats load(const uint16_t* from) { return load_halves(from); }
  static float one(uint16_t value) { return half_to_float(value); }
};

template <>
struct CacheElement<CacheType::kInt8> {
  using Stored = uint8_t;
  static Floats load(const uint8_t* from) { return sub(load_bytes(from), broadcast(kByteOffset)); }
  static float one(uint8_t value) { return static_cast<float>(value - kByteOffset); }
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
