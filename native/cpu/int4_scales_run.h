// `fit_int4_scales` of one instruction set: a lane is a block, sixteen blocks at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "int4_scales_kernels.h"
#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

inline constexpr size_t kColumns = 32;                        // of a block
inline constexpr size_t kSums = 4;                            // of a block: columns 0, 4, 8 .. are the first's
inline constexpr size_t kOrder[] = {3, 2, 1, 0, 7, 6, 5, 4};  // in which fours of columns are added to the sums

struct BlockSums {
  float overlap[kLanes];  // of weight * integer
  float norm[kLanes];     // of integer * integer
};

// Column by column; blocks beyond `count` are 0.
inline void transpose(const float* blocks, size_t count, float (*weights)[kLanes]) {
  for (size_t column = 0; column < kColumns; ++column) {
    for (size_t i = 0; i < kLanes; ++i) weights[column][i] = i < count ? blocks[i * kColumns + column] : 0.0f;
  }
}

// The first of the values that are furthest from 0.
inline void find_extremes(const float (*weights)[kLanes], float* extremes) {
  std::fill_n(extremes, kLanes, 0.0f);
  for (size_t column = 0; column < kColumns; ++column) {
    for (size_t i = 0; i < kLanes; ++i) {
      const float weight = weights[column][i];
      extremes[i] = std::fabs(weight) > std::fabs(extremes[i]) ? weight : extremes[i];
    }
  }
}

inline BlockSums sum_products(const float (*weights)[kLanes], const float* inverses) {
  const Floats inverse = load(inverses), least = broadcast(-8.0f), most = broadcast(7.0f);
  Floats overlap[kSums] = {zeros(), zeros(), zeros(), zeros()}, norm = zeros();
  for (const size_t four : kOrder) {
    for (size_t sum = 0; sum < kSums; ++sum) {
      const Floats weight = load(weights[four * kSums + sum]);
      const Floats integer = round(min(most, max(least, mul(weight, inverse))));
      overlap[sum] = add(overlap[sum], mul(weight, integer));
      norm = add(norm, mul(integer, integer));
    }
  }
  BlockSums sums;
  store(sums.overlap, add(add(overlap[0], overlap[1]), add(overlap[2], overlap[3])));
  store(sums.norm, norm);
  return sums;
}

inline void fit_sixteen(const float (*weights)[kLanes], std::span<const float> candidates, float* scales) {
  float extremes[kLanes], inverses[kLanes], gains[kLanes];
  find_extremes(weights, extremes);
  std::fill_n(scales, kLanes, 0.0f);
  std::fill_n(gains, kLanes, -1.0f);
  for (const float candidate : candidates) {
    for (size_t i = 0; i < kLanes; ++i) {
      const float scale = extremes[i] * candidate;
      inverses[i] = scale == 0 ? 0.0f : 1.0f / scale;
    }
    const BlockSums sums = sum_products(weights, inverses);
    for (size_t i = 0; i < kLanes; ++i) {
      const float scale = sums.norm[i] > 0 ? sums.overlap[i] / sums.norm[i] : 0.0f;
      const float gain = sums.overlap[i] * scale;  // what it takes from the squared error of zeros
      scales[i] = gain > gains[i] ? scale : scales[i];
      gains[i] = gain > gains[i] ? gain : gains[i];
    }
  }
}

inline void run_int4_scales(std::span<const float> blocks, std::span<const float> candidates, std::span<float> scales) {
  for (size_t first = 0; first < scales.size(); first += kLanes) {
    const size_t count = std::min<size_t>(kLanes, scales.size() - first);
    float weights[kColumns][kLanes], found[kLanes];
    transpose(blocks.data() + first * kColumns, count, weights);
    fit_sixteen(weights, candidates, found);
    std::copy_n(found, count, scales.data() + first);
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
