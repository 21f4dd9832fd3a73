// Results of splits on their way through global memory to the block that adds them. They carry their own arrival: all
// bits are set until one is written, and again once it has been read.
#pragma once

#include "attention_softmax.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

struct Partials {
  const PagedAttention& a;
  int num_splits;

  /// [head_dim] sums of a query of the pass.
  __device__ float* values(size_t query, int split) const {
    return a.partials + (query * num_splits + split) * (a.shape.head_dim + 4);
  }
  /// Behind them maximum and sum of the softmax.
  __device__ float4* softmax(size_t query, int split) const {
    return reinterpret_cast<float4*>(values(query, split) + a.shape.head_dim);
  }

  __device__ static float4 arrived(const float4* source, float4 value) {
    while (!is_written(value)) value = load_relaxed(source);
    return value;
  }
  __device__ static void clear(float4* target) {
    const float empty = __uint_as_float(kNotWritten);
    store_relaxed(target, make_float4(empty, empty, empty, empty));
  }
};

/// Four columns of a query on their way through the splits of its keys.
struct ColumnTotal {
  Softmax softmax;
  float4 sum = {};

  __device__ void add(const Softmax& part_softmax, const float4& part) {
    const Join factors = join(softmax, part_softmax);
    sum.x = joined(factors, sum.x, part.x);
    sum.y = joined(factors, sum.y, part.y);
    sum.z = joined(factors, sum.z, part.z);
    sum.w = joined(factors, sum.w, part.w);
  }

  /// Adds the parts of splits first..last - 1 of `vector`, columns 4 vector to 4 vector + 3, and clears them but for
  /// their softmax, which others read.
  __device__ void add_splits(const Partials& partials, size_t query, int vector, int first, int last) {
    constexpr int kAtOnce = 8;
    const auto source = [&](int split) { return reinterpret_cast<float4*>(partials.values(query, split)) + vector; };
    for (int begin = first; begin < last; begin += kAtOnce) {
      float4 values[kAtOnce], softmaxes[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i >= last) continue;
        values[i] = load_relaxed(source(begin + i));
        softmaxes[i] = load_relaxed(partials.softmax(query, begin + i));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i >= last) continue;
        const float4 value = Partials::arrived(source(begin + i), values[i]);
        const float4 part = Partials::arrived(partials.softmax(query, begin + i), softmaxes[i]);
        Partials::clear(source(begin + i));
        add({part.x, part.y}, value);
      }
    }
  }
};

}  // namespace pilotfish::cuda
