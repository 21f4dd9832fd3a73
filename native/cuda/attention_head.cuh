// One head of a row of the pass, held by a warp: RMSNorm, rotary embedding, and its way into the cache. A lane has four
// columns, two by two beside each other: the pairs that rotate together, or their neighbours.
#pragma once

#include "attention_cache.cuh"

namespace pilotfish::cuda {

/// Which columns a lane has. Groups of four of a head that is wider than 128.
template <int kDim>
class HeadLane {
 public:
  static constexpr int kGroups = (kDim + 4 * kWarpSize - 1) / (4 * kWarpSize);

  __device__ explicit HeadLane(const AttentionShape& shape) : head_dim_(shape.head_dim), half_(shape.rotary_dim / 2) {
    joins_halves_ = !shape.is_interleaved;
  }

  __device__ int pair(int group) const { return 2 * (static_cast<int>(threadIdx.x) % kWarpSize + group * kWarpSize); }
  __device__ bool rotates(int group) const { return pair(group) < half_; }
  __device__ bool joins_halves(int group) const { return joins_halves_ && rotates(group); }
  __device__ bool exists(int group) const { return 2 * pair(group) < head_dim_; }
  /// Of two columns each, the second pair beside the first or half the rotated columns behind it.
  __device__ int first(int group) const { return joins_halves(group) ? pair(group) : 2 * pair(group); }
  __device__ int second(int group) const { return joins_halves(group) ? half_ + pair(group) : 2 * pair(group) + 2; }

 private:
  int head_dim_;
  int half_;
  bool joins_halves_;
};

template <int kDim>
class Head {
  using Lane = HeadLane<kDim>;
  static constexpr int kGroups = Lane::kGroups;

 public:
  struct Angles {
    float4 of_group[kGroups];  // cosines of two pairs, then their sines
  };

  /// cos, sin: tables of the position.
  __device__ static void load_angles(const Lane& lane, const float* cos, const float* sin, Angles& angles) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      angles.of_group[i] = make_float4(1, 1, 0, 0);
      if (!lane.rotates(i)) continue;
      const float2 c = __ldg(reinterpret_cast<const float2*>(cos + lane.pair(i)));
      const float2 s = __ldg(reinterpret_cast<const float2*>(sin + lane.pair(i)));
      angles.of_group[i] = make_float4(c.x, c.y, s.x, s.y);
    }
  }

  __device__ void load(const Lane& lane, const float* source) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      values_[i] = {};
      if (!lane.exists(i)) continue;
      const float2 a = __ldcg(reinterpret_cast<const float2*>(source + lane.first(i)));
      const float2 b = __ldcg(reinterpret_cast<const float2*>(source + lane.second(i)));
      values_[i] = make_float4(a.x, a.y, b.x, b.y);
    }
  }

  __device__ void normalise(const Lane& lane, const float* weight, int head_dim, float epsilon) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const float4 v = values_[i];
      squares = __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, squares))));
    }
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, offset));
    }
    const float inverse = rsqrtf(__fdiv_rn(squares, static_cast<float>(head_dim)) + epsilon);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      if (!lane.exists(i)) continue;
      const float2 a = __ldg(reinterpret_cast<const float2*>(weight + lane.first(i)));
      const float2 b = __ldg(reinterpret_cast<const float2*>(weight + lane.second(i)));
      float4& v = values_[i];
      v = make_float4(__fmul_rn(v.x, __fmul_rn(inverse, a.x)), __fmul_rn(v.y, __fmul_rn(inverse, a.y)),
                      __fmul_rn(v.z, __fmul_rn(inverse, b.x)), __fmul_rn(v.w, __fmul_rn(inverse, b.y)));
    }
  }

  __device__ void rotate(const Lane& lane, const Angles& angles) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const float4 angle = angles.of_group[i];
      float4& v = values_[i];
      if (lane.joins_halves(i)) {
        turn(v.x, v.z, angle.x, angle.z);
        turn(v.y, v.w, angle.y, angle.w);
      } else {
        turn(v.x, v.y, angle.x, angle.z);
        turn(v.z, v.w, angle.y, angle.w);
      }
    }
  }

  /// Leaves the head as bytes, multiples of its scale; its scale.
  template <CacheType kType>
  __device__ __half quantise() {
    using Element = ByteElement<kType>;
    float most = 0;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const float4& v = values_[i];
      most = fmaxf(most, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
    }
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
    }
    const __half scale = finite_half(__fdiv_rn(fminf(most, kMaxHalf), kLargestElement));
    const float factor = __half2float(scale);
    const float inverse = factor > 0 ? __fdiv_rn(1.0f, factor) : 0.0f;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      float4& v = values_[i];
      v = make_float4(Element::of(v.x, inverse), Element::of(v.y, inverse), Element::of(v.z, inverse),
                      Element::of(v.w, inverse));
    }
    return scale;
  }

  /// Calls put(column, two values) for the columns that exist, or all up to kDim, which are zero; columns are even.
  enum Columns { kExisting, kPadded };
  template <Columns kColumns, class Put>
  __device__ void for_each(const Lane& lane, const Put& put) const {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      if (kColumns == kPadded ? 2 * lane.pair(i) >= kDim : !lane.exists(i)) continue;
      put(lane.first(i), make_float2(values_[i].x, values_[i].y));
      put(lane.second(i), make_float2(values_[i].z, values_[i].w));
    }
  }

 private:
  __device__ static void turn(float& a, float& b, float cos, float sin) {
    const float turned = __fmaf_rn(a, cos, -__fmul_rn(b, sin));
    b = __fmaf_rn(b, cos, __fmul_rn(a, sin));
    a = turned;
  }

  float4 values_[kGroups];
};

/// Writes a head as a row of a cache of kType, after quantise() where it has scales. `target`: global or shared memory.
template <CacheType kType, int kDim, typename Head<kDim>::Columns kColumns>
__device__ __forceinline__ void store_row(const HeadLane<kDim>& lane, const Head<kDim>& head, void* target) {
  head.template for_each<kColumns>(lane, [&](int column, const float2& values) {
    auto* const place = static_cast<uint16_t*>(target) + column / (2 / kElementBytes<kType>);
    if constexpr (kHasScales<kType>) {
      *place = static_cast<uint16_t>(static_cast<int>(values.x) | static_cast<int>(values.y) << 8);
    } else {
      store_pair(place, values);
    }
  });
}

/// Writes a head that is ready into the cache.
template <CacheType kType, int kDim>
__device__ __forceinline__ void store_in_cache(const PagedAttention& a, const HeadLane<kDim>& lane,
                                               const Head<kDim>& head, __half scale, void* pool, int cell,
                                               int kv_head) {
  store_row<kType, kDim, Head<kDim>::kExisting>(lane, head,
                                                static_cast<uint4*>(pool) + row_offset<kType>(a, cell, kv_head));
  if constexpr (kHasScales<kType>) {
    if (threadIdx.x % kWarpSize == 0) *row_scale(a, pool, cell, kv_head) = scale;
  }
}

}  // namespace pilotfish::cuda
