// One head of a row of the pass, held by a warp: RMSNorm, rotary embedding, and its way into the cache. A lane has
// pairs of columns that rotate together.
#pragma once

#include "attention_cache.cuh"

namespace pilotfish::cuda {

template <int kDim>
class Head {
 public:
  static constexpr int kPairs = (kDim + 2 * kWarpSize - 1) / (2 * kWarpSize);
  using Angles = float2[kPairs];  // cosine, sine

  /// cos, sin: tables of the position.
  __device__ static void load_angles(const AttentionShape& shape, const float* cos, const float* sin, Angles& angles) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int pair = index(i);
      angles[i] = pair < shape.rotary_dim / 2 ? make_float2(__ldg(cos + pair), __ldg(sin + pair)) : make_float2(1, 0);
    }
  }

  __device__ void load(const AttentionShape& shape, const float* source) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int2 at = columns(shape, i);
      const bool exists = 2 * index(i) < shape.head_dim;
      pairs_[i] = exists ? make_float2(__ldcg(source + at.x), __ldcg(source + at.y)) : make_float2(0, 0);
    }
  }

  __device__ void normalise(const AttentionShape& shape, const float* weight) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      squares = __fmaf_rn(pairs_[i].x, pairs_[i].x, squares);
      squares = __fmaf_rn(pairs_[i].y, pairs_[i].y, squares);
    }
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, offset));
    }
    const float inverse = rsqrtf(__fdiv_rn(squares, static_cast<float>(shape.head_dim)) + shape.norm_epsilon);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (2 * index(i) >= shape.head_dim) continue;
      const int2 at = columns(shape, i);
      pairs_[i].x = __fmul_rn(pairs_[i].x, __fmul_rn(inverse, __ldg(weight + at.x)));
      pairs_[i].y = __fmul_rn(pairs_[i].y, __fmul_rn(inverse, __ldg(weight + at.y)));
    }
  }

  __device__ void rotate(const Angles& angles) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const float2 pair = pairs_[i], angle = angles[i];
      pairs_[i].x = __fmaf_rn(pair.x, angle.x, -__fmul_rn(pair.y, angle.y));
      pairs_[i].y = __fmaf_rn(pair.y, angle.x, __fmul_rn(pair.x, angle.y));
    }
  }

  /// The scale of an int8 row, and the head as integers plus 128.
  __device__ __half quantise() {
    float most = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) most = fmaxf(most, fmaxf(fabsf(pairs_[i].x), fabsf(pairs_[i].y)));
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
    }
    const __half scale = saturated_half(__fdiv_rn(fminf(most, kMaxHalf), 127.0f));
    const float factor = __half2float(scale);
    const float inverse = factor > 0 ? __fdiv_rn(1.0f, factor) : 0.0f;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      pairs_[i] = make_float2(biased(pairs_[i].x, inverse), biased(pairs_[i].y, inverse));
    }
    return scale;
  }

  /// Calls put(column, value) for the columns that exist, and with kPadding for those up to kDim, which are zero.
  enum Columns { kExisting, kPadded };
  template <Columns kColumns, class Put>
  __device__ void for_each(const AttentionShape& shape, const Put& put) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (2 * index(i) >= (kColumns == kPadded ? kDim : shape.head_dim)) continue;
      const int2 at = columns(shape, i);
      put(at.x, pairs_[i].x);
      put(at.y, pairs_[i].y);
    }
  }

 private:
  __device__ static int index(int i) { return threadIdx.x % kWarpSize + i * kWarpSize; }
  __device__ static int2 columns(const AttentionShape& shape, int i) {
    const int pair = index(i), half = shape.rotary_dim / 2;
    return shape.is_interleaved || pair >= half ? make_int2(2 * pair, 2 * pair + 1) : make_int2(pair, half + pair);
  }
  __device__ static float biased(float value, float inverse) {
    return rintf(fminf(fmaxf(__fmul_rn(value, inverse), -127.0f), 127.0f)) + 128.0f;
  }

  float2 pairs_[kPairs];
};

/// Writes a head as a row of a cache of kType; int8: after quantise(). `target`: global or shared memory.
template <CacheType kType, int kDim, typename Head<kDim>::Columns kColumns>
__device__ __forceinline__ void store_row(const AttentionShape& shape, const Head<kDim>& head, void* target) {
  head.template for_each<kColumns>(shape, [&](int column, float value) {
    if constexpr (kType == CacheType::kF16) {
      static_cast<__half*>(target)[column] = saturated_half(value);
    } else {
      static_cast<uint8_t*>(target)[column] = static_cast<uint8_t>(static_cast<int>(value));
    }
  });
}

/// Writes a head that is ready into the cache.
template <CacheType kType, int kDim>
__device__ __forceinline__ void store_in_cache(const PagedAttention& a, const Head<kDim>& head, __half scale,
                                               void* pool, int cell, int kv_head) {
  auto* const row = static_cast<uint4*>(pool) + row_offset<kType>(a, cell, kv_head);
  store_row<kType, kDim, Head<kDim>::kExisting>(a.shape, head, row);
  if constexpr (kType == CacheType::kInt8) {
    if (threadIdx.x % kWarpSize == 0) *row_scale(a, pool, cell, kv_head) = scale;
  }
}

}  // namespace pilotfish::cuda
