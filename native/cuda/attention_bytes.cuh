// Scores and weighted values of a chunk of a cache of bytes on tensor cores, made f16 in registers.
#pragma once

#include "attention_softmax.cuh"

namespace pilotfish::cuda {

inline constexpr uint32_t kOnes = 0x3C003C00;  // two f16

/// An int8 is multiplied as 1152 + q with q in -127..127, f16 with the bits of q's byte: what that is too much is taken
/// off the sums, by products with ones.
inline constexpr float kByteOffset = 1152.0f;

/// Two f16 from bytes 0 and 1, or 2 and 3, of a word: int8 with its offset, fp8 exactly.
template <CacheType kType, int kHalf>
__device__ __forceinline__ uint32_t halves_of(uint32_t word) {
  if constexpr (kType == CacheType::kInt8) return __byte_perm(word, 0x64646464, kHalf == 0 ? 0x4140 : 0x4342);
#if __CUDA_ARCH__ >= 890
  uint32_t pair;
  if constexpr (kHalf == 0) {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }" : "=r"(pair) : "r"(word));
  } else {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high; }" : "=r"(pair) : "r"(word));
  }
  return pair;
#else
  const uint32_t upper = __byte_perm(word, 0, kHalf == 0 ? 0x1404 : 0x3424);  // each byte the upper one of a half
  const uint32_t bits = (upper & 0x80008000) | (upper & 0x7F007F00) >> 1;     // f16's exponents are 8 more
  const __half2 pair = __hmul2(reinterpret_cast<const __half2&>(bits), __float2half2_rn(256.0f));
  return reinterpret_cast<const uint32_t&>(pair);
#endif
}

/// The same with keys of bytes, and their scales.
template <CacheType kType, int kDim>
__device__ __forceinline__ void score_bytes(uint32_t queries, const ChunkPlace& chunk, Scores& scores) {
  const int lane = threadIdx.x % kWarpSize;
  queries += lane_rows<kQueryBytes<kDim>>();
  const uint32_t keys = chunk.keys + lane * kCacheRowBytes<kType, kDim>;
  float4 sums = {};
#pragma unroll
  for (int i = 0; i < kChunkKeys / 8; ++i) scores[i] = float4{};
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    uint32_t query[4], key[4];
    load_matrices(query, queries + step * 32);
    load_matrices(key, keys + step * 16);
    if constexpr (kType == CacheType::kInt8) sums = multiply(query, kOnes, kOnes, sums);
#pragma unroll
    for (int i = 0; i < kChunkKeys / 8; ++i) {
      scores[i] = multiply(query, halves_of<kType, 0>(key[i]), halves_of<kType, 1>(key[i]), scores[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kChunkKeys / 8; ++i) {
    const float2 scale = *reinterpret_cast<const float2*>(chunk.key_scales + i * 8 + lane % 4 * 2);
    if constexpr (kType == CacheType::kInt8) {
      scores[i] =
          make_float4(__fmaf_rn(-kByteOffset, sums.x, scores[i].x), __fmaf_rn(-kByteOffset, sums.y, scores[i].y),
                      __fmaf_rn(-kByteOffset, sums.z, scores[i].z), __fmaf_rn(-kByteOffset, sums.w, scores[i].w));
    }
    scores[i] = make_float4(__fmul_rn(scores[i].x, scale.x), __fmul_rn(scores[i].y, scale.y),
                            __fmul_rn(scores[i].z, scale.x), __fmul_rn(scores[i].w, scale.y));
  }
}

/// `words` words from shared memory, as wide as they are aligned.
template <int kWords>
__device__ __forceinline__ void load_words(uint32_t (&words)[kWords], uint32_t address) {
  if constexpr (kWords == 4) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(address) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[i]) : "r"(address + i * 4) : "memory");
    }
  }
}

/// Values of bytes: lane 4 g + t reads kDim / 8 columns of its keys, and tile i of eight columns has byte i of every g.
template <CacheType kType, Order kOrder, int kDim>
__device__ __forceinline__ void weigh_bytes(const Weights& weights, uint32_t values, const Join (&factors)[2],
                                            Running<kDim>& running) {
  constexpr int kBytes = kCacheRowBytes<kType, kDim>;
  constexpr int kWords = kDim == 96 ? 3 : 2;  // at once: more cost registers
  const int lane = threadIdx.x % kWarpSize;
  values += lane % 4 * 2 * kBytes + lane / 4 * (kDim / 8);
  float4 start = {};
  if constexpr (kType == CacheType::kInt8) {
#pragma unroll
    for (int i = 0; i < kChunkKeys / 16; ++i) start = multiply(weights[i], kOnes, kOnes, start);
    start = make_float4(-kByteOffset * start.x, -kByteOffset * start.y, -kByteOffset * start.z, -kByteOffset * start.w);
  }
#pragma unroll
  for (int first = 0; first < kDim / 32; first += kWords) {
    uint32_t words[kChunkKeys / 16][4][kWords];
#pragma unroll
    for (int i = 0; i < kChunkKeys / 16; ++i) {
#pragma unroll
      for (int key = 0; key < 4; ++key) {
        load_words(words[i][key], values + (i * 16 + key / 2 * 8 + key % 2) * kBytes + first * 4);
      }
    }
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      float4 sums[4] = {start, start, start, start};
#pragma unroll
      for (int i = 0; i < kChunkKeys / 16; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // Bytes 2 half and 2 half + 1 of two neighbouring keys.
          const int selector = half == 0 ? 0x5140 : 0x7362;
          const uint32_t low = __byte_perm(words[i][0][word], words[i][1][word], selector);
          const uint32_t high = __byte_perm(words[i][2][word], words[i][3][word], selector);
          sums[2 * half] = multiply(weights[i], halves_of<kType, 0>(low), halves_of<kType, 0>(high), sums[2 * half]);
          sums[2 * half + 1] =
              multiply(weights[i], halves_of<kType, 1>(low), halves_of<kType, 1>(high), sums[2 * half + 1]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) add_chunk<kOrder>(running, (first + word) * 4 + i, sums[i], factors);
    }
  }
}

}  // namespace pilotfish::cuda
