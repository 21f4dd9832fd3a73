#include "row_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define PF_ALL_WIDTHS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PF_ALL_WIDTHS
#endif
#define PF_INLINE __attribute__((always_inline)) inline

namespace pilotfish {
namespace {

constexpr size_t kLanes = 16;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

constexpr float kLowest = -std::numeric_limits<float>::infinity();

PF_INLINE void load(const float* from, Floats& to) { std::memcpy(&to, from, sizeof to); }
PF_INLINE void store(const Floats& from, float* to) { std::memcpy(to, &from, sizeof from); }

// The last, partial vector of a row, filled up with `filler`.
PF_INLINE void load_tail(const float* from, size_t count, float filler, Floats& to) {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, filler);
  std::copy(from, from + count, lanes);
  load(lanes, to);
}

PF_INLINE float sum_lanes(const Floats& lanes) {
  float sum = 0;
  for (size_t i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
}

PF_INLINE float max_lanes(const Floats& lanes) {
  float peak = lanes[0];
  for (size_t i = 1; i < kLanes; ++i) peak = lanes[i] > peak ? lanes[i] : peak;
  return peak;
}

// exp(x) for x <= 0 within 2 ulp: 2^n times the Taylor series of the rest, |rest| <= ln(2) / 2; 0 below exp's normal
// range. NaN stays NaN.
PF_INLINE void exp_lanes(Floats& x) {
  constexpr float kSmallest = -87.0f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Ints underflow = x < kSmallest;
  x = underflow ? Floats{} + kSmallest : x;
  const Floats shifted = x * 1.44269504f + kRounder;
  const Floats n = shifted - kRounder;
  const Floats rest = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats series = rest * (1.0f / 5040) + (1.0f / 720);
  series = series * rest + (1.0f / 120);
  series = series * rest + (1.0f / 24);
  series = series * rest + (1.0f / 6);
  series = series * rest + 0.5f;
  series = series * rest + 1.0f;
  series = series * rest + 1.0f;
  const Ints exponent = (std::bit_cast<Ints>(shifted) - std::bit_cast<int32_t>(kRounder)) << 23;
  const Ints bits = std::bit_cast<Ints>(series) + exponent;
  x = underflow ? Floats{} : std::bit_cast<Floats>(bits);
}

}  // namespace

PF_ALL_WIDTHS Peak find_peak(std::span<const float> row) {
  const float* data = row.data();
  const size_t size = row.size();
  Floats best = Floats{} + kLowest;
  Floats x;
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    load(data + i, x);
    best = x > best ? x : best;
  }
  load_tail(data + i, size - i, kLowest, x);
  best = x > best ? x : best;
  const float peak = max_lanes(best);
  size_t index = 0;
  for (; index + kLanes <= size; index += kLanes) {
    bool found = false;
    for (size_t j = 0; j < kLanes; ++j) found |= data[index + j] == peak;
    if (found) break;
  }
  while (index < size && data[index] != peak) ++index;
  return {peak, index < size ? static_cast<int32_t>(index) : 0};
}

PF_ALL_WIDTHS float exp_sum(std::span<const float> row, float peak, float scale) {
  const float* data = row.data();
  const size_t size = row.size();
  Floats sums{};
  Floats x;
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    load(data + i, x);
    x = (x - peak) * scale;
    exp_lanes(x);
    sums += x;
  }
  load_tail(data + i, size - i, kLowest, x);
  x = (x - peak) * scale;
  exp_lanes(x);
  sums += x;
  return sum_lanes(sums);
}

PF_ALL_WIDTHS float exp_into(std::span<const float> row, float peak, float scale, float* out) {
  const float* data = row.data();
  const size_t size = row.size();
  Floats sums{};
  Floats x;
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    load(data + i, x);
    x = (x - peak) * scale;
    exp_lanes(x);
    store(x, out + i);
    sums += x;
  }
  load_tail(data + i, size - i, kLowest, x);
  x = (x - peak) * scale;
  exp_lanes(x);
  sums += x;
  for (size_t j = 0; i + j < size; ++j) out[i + j] = x[j];
  return sum_lanes(sums);
}

PF_ALL_WIDTHS ExpMoments exp_moments(std::span<const float> row, float peak, float scale) {
  constexpr float kNoWeight = -100;  // exp_lanes gives 0: keeps 0 * -inf out of the sum
  const float* data = row.data();
  const size_t size = row.size();
  Floats sums{};
  Floats weighted{};
  for (size_t i = 0; i < size; i += kLanes) {
    Floats x;
    if (i + kLanes <= size) {
      load(data + i, x);
    } else {
      load_tail(data + i, size - i, kLowest, x);
    }
    x = (x - peak) * scale;
    x = x < kNoWeight ? Floats{} + kNoWeight : x;
    Floats weights = x;
    exp_lanes(weights);
    sums += weights;
    weighted += weights * x;
  }
  return {sum_lanes(sums), sum_lanes(weighted)};
}

PF_ALL_WIDTHS void copy_masked(std::span<const float> row, const uint32_t* mask, float* out) {
  constexpr Ints kBits = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  const float* data = row.data();
  const size_t size = row.size();
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const auto bits = static_cast<int32_t>(mask[i / 32] >> (i % 32) & 0xFFFF);
    Floats x;
    load(data + i, x);
    x = (kBits & bits) != 0 ? x : Floats{} + kLowest;
    store(x, out + i);
  }
  for (; i < size; ++i) out[i] = (mask[i / 32] >> (i % 32) & 1) != 0 ? data[i] : kLowest;
}

PF_ALL_WIDTHS float subtract_positive(std::span<float> out, const float* other, float factor) {
  float* data = out.data();
  const size_t size = out.size();
  Floats sums{};
  Floats x, y;
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    load(data + i, x);
    load(other + i, y);
    y *= factor;
    x = x > y ? x - y : Floats{};
    store(x, data + i);
    sums += x;
  }
  float sum = sum_lanes(sums);
  for (; i < size; ++i) {
    const float part = factor * other[i];
    data[i] = data[i] > part ? data[i] - part : 0.0f;
    sum += data[i];
  }
  return sum;
}

PF_ALL_WIDTHS void multiply(std::span<float> values, float factor) {
  for (float& value : values) value *= factor;
}

PF_ALL_WIDTHS void block_peaks(std::span<const float> row, float* peaks) {
  const float* data = row.data();
  const size_t size = row.size();
  Floats x;
  for (size_t begin = 0; begin < size; begin += kPeakBlock, ++peaks) {
    const size_t end = std::min(size, begin + kPeakBlock);
    Floats best = Floats{} + kLowest;
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      load(data + i, x);
      best = x > best ? x : best;
    }
    load_tail(data + i, end - i, kLowest, x);
    best = x > best ? x : best;
    *peaks = max_lanes(best);
  }
}

}  // namespace pilotfish
