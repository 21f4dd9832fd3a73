// What tells the types of caches apart on a GPU: how floats become elements, and elements operands of tensor cores.
#pragma once

#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

template <CacheType kType>
inline constexpr int kElementBytes = element_bytes(kType);
template <CacheType kType>
inline constexpr bool kHasScales = has_scales(kType);

/// Weights times scales of values are kept clear of what f16 rounds coarsely, and stay below its largest number.
template <CacheType kType>
inline constexpr float kWeightScale = kHasScales<kType> ? 64.0f : 1.0f;

/// Elements of two bytes are f16. Of a type with scales they are bytes, each multiplied as an f16 that is kOffset more
/// than it stands for: what that is too much is taken off the sums, by products with ones.
template <CacheType kType>
struct ByteElement;

/// Integers plus 128.
template <>
struct ByteElement<CacheType::kInt8> {
  static constexpr float kOffset = 1152.0f;  // f16 has the bits of q's byte as 1152 + q with q in -127..127

  /// The byte of a value, as a float. `inverse`: of the head's scale.
  __device__ static float of(float value, float inverse) {
    return rintf(fminf(fmaxf(__fmul_rn(value, inverse), -kLargestElement), kLargestElement)) + 128.0f;
  }

  /// Two f16 with their offset from bytes 0 and 1, or 2 and 3, of a word.
  template <int kHalf>
  __device__ __forceinline__ static uint32_t halves_of(uint32_t word) {
    return __byte_perm(word, 0x64646464, kHalf == 0 ? 0x4140 : 0x4342);
  }

  /// Two f16 of one column from two keys' bytes of it and its neighbour, of which it is the first or the second.
  template <int kColumn>
  __device__ __forceinline__ static uint32_t column_of(uint32_t word) {
    return __byte_perm(word, 0x64646464, kColumn == 0 ? 0x4240 : 0x4341);
  }
};

/// Calls launch.operator()<kType>() where the kernels have the type.
template <class Launch>
cudaError_t for_cache_type(CacheType type, const Launch& launch) {
  switch (type) {
    case CacheType::kF16:
      return launch.template operator()<CacheType::kF16>();
    case CacheType::kInt8:
      return launch.template operator()<CacheType::kInt8>();
    case CacheType::kF32:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace pilotfish::cuda
