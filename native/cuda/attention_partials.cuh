// Results of splits on their way through global memory to the block that adds them. They carry their own arrival: all
// bits are set until one is written, and again once it has been read.
#pragma once

#include "attention_softmax.cuh"

namespace pilotfish::cuda {

/// What a warp adds: 64 columns of a query and a split, two a lane, with the split's softmax.
struct Partial {
  static constexpr int kColumns = 2 * kWarpSize;

  float2 sums[kWarpSize];
  float4 softmax;  // maximum and sum

  /// In parts of so many columns goes a head.
  static constexpr int num_parts(int head_dim) { return (head_dim + kColumns - 1) / kColumns; }
};

/// [query of the pass][split][part of kDim columns].
template <int kDim>
struct Partials {
  static constexpr int kParts = Partial::num_parts(kDim);

  Partial* start;
  int num_splits;

  __device__ Partial* parts(size_t query, int split) const { return start + (query * num_splits + split) * kParts; }
};

/// A part of a query on its way through the splits of its keys, in order. What all lanes need of a split's softmax, one
/// of them computes.
template <int kDim>
class QueryTotal {
  static constexpr int kAtOnce = 16;  // splits: memory answers them together

 public:
  /// Of a warp, in shared memory: what total and split are multiplied with, and the split's sum.
  using Factors = float4[kAtOnce];

  float2 values = {};
  Softmax softmax;

  /// Adds `count` splits and clears them. `source`: the first one's part; kParts further lies the next one's.
  __device__ void add_splits(Partial* source, bool has_columns, int count, Factors& factors) {
#pragma unroll 1
    for (; count > 0; count -= kAtOnce, source += kAtOnce * kStride) {
      const int num_mine = has_columns ? count : 0;
      float2 parts[kAtOnce] = {};
      for_each(count, [&](int i) {
        if (i < num_mine) parts[i] = load_relaxed(source[i * kStride].sums + lane());
      });
      find_factors(source, count, factors);
      for (bool waits = true; waits;) {
        waits = false;
        for_each(count, [&](int i) {
          if (is_written(parts[i])) return;
          parts[i] = load_relaxed(source[i * kStride].sums + lane());
          waits = true;
        });
      }
      const float empty = __uint_as_float(kNotWritten);
      for_each(count, [&](int i) {
        add({factors[i].x, factors[i].y}, parts[i], factors[i].z);
        if (i < num_mine) store_relaxed(source[i * kStride].sums + lane(), make_float2(empty, empty));
      });
      __syncwarp();  // nobody is at the factors any more
    }
  }

  __device__ void add(const Softmax& part_softmax, const float2& part) {
    Softmax total = softmax;
    add(join(total, part_softmax), part, part_softmax.sum);
    softmax.maximum = total.maximum;
  }

 private:
  static constexpr int kStride = Partials<kDim>::kParts;

  __device__ static int lane() { return threadIdx.x % kWarpSize; }

  /// Numbers up to kAtOnce - 1: those below count, and at most three more.
  template <class Work>
  __device__ static void for_each(int count, const Work& work) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i % 4 == 0 && i >= count) break;
      work(i);
    }
  }

  __device__ void add(const Join& join, const float2& part, float part_sum) {
    values = make_float2(joined(join, values.x, part.x), joined(join, values.y, part.y));
    softmax.sum = joined(join, softmax.sum, part_sum);
  }

  /// What join() gives split by split: a lane has a split, and the largest maximum up to it.
  __device__ void find_factors(Partial* source, int count, Factors& factors) {
    float4 part = {};
    if (lane() < min(count, kAtOnce)) {
      float4* const place = &source[lane() * kStride].softmax;
      do part = load_relaxed(place);
      while (!is_written(part));
      const float empty = __uint_as_float(kNotWritten);
      store_relaxed(place, make_float4(empty, empty, empty, empty));
    }
    const bool has_keys = part.y != 0;
    float most = fmaxf(softmax.maximum, has_keys ? part.x : -INFINITY);
#pragma unroll
    for (int distance = 1; distance < kAtOnce; distance *= 2) {
      most = fmaxf(most, __shfl_up_sync(~0u, most, distance));  // the first lanes get their own
    }
    const float before = __shfl_up_sync(~0u, most, 1);
    const float total = lane() == 0 ? softmax.maximum : before;
    if (lane() < kAtOnce) {
      factors[lane()] = make_float4(has_keys ? power_of_two(total - most) : 1.0f,
                                    has_keys ? power_of_two(part.x - most) : 0.0f, part.y, 0);
    }
    softmax.maximum = __shfl_sync(~0u, most, kAtOnce - 1);
    __syncwarp();
  }
};

}  // namespace pilotfish::cuda
