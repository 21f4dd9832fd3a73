#include "sampling/row_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "sampling/all_widths.h"

namespace pilotfish {
namespace {

constexpr size_t kLanes = 16;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
using Bits = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t))));  // wrap where they overflow

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

constexpr float kLog2e = 1.44269504f;

// 2^x for x <= 0: 2^n times a polynomial in the rest, |rest| <= 1/2, whose relative error is at most 2e-7 (minimax,
// with 2^0 = 1 kept exact); 0 below the normal range. NaN stays NaN.
PF_INLINE void exp2_lanes(Floats& x) {
  constexpr float kSmallest = -126.0f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const Ints underflow = x < kSmallest;
  const Floats shifted = x + kRounder;
  const Floats rest = x - (shifted - kRounder);
  Floats series = rest * 0.001326472731f + 0.009671512991f;
  series = series * rest + 0.05550733581f;
  series = series * rest + 0.2402224243f;
  series = series * rest + 0.6931470037f;
  series = series * rest + 1.0f;
  const Bits bits = std::bit_cast<Bits>(series) + (std::bit_cast<Bits>(shifted) << 23);
  x = underflow ? Floats{} : std::bit_cast<Floats>(bits);
}

template <bool kIsStored>
PF_INLINE float exp_row(std::span<const float> row, float peak, float scale, float* out) {
  const float factor = scale * kLog2e;
  const float* data = row.data();
  const size_t size = row.size();
  Floats sums{};
  Floats x;
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    load(data + i, x);
    x = (x - peak) * factor;
    exp2_lanes(x);
    if constexpr (kIsStored) store(x, out + i);
    sums += x;
  }
  load_tail(data + i, size - i, kLowest, x);
  x = (x - peak) * factor;
  exp2_lanes(x);
  sums += x;
  if constexpr (kIsStored) {
    for (size_t j = 0; i + j < size; ++j) out[i + j] = x[j];
  }
  return sum_lanes(sums);
}

}  // namespace

Peak find_peak(std::span<const float> row) {
  return at_best_width([&]() PF_INLINED {
    constexpr size_t kChains = 4;  // independent ones, for speed
    const float* data = row.data();
    const size_t size = row.size();
    Floats best[kChains];
    Ints where[kChains];  // the first vector in which a lane had its best
    for (size_t c = 0; c < kChains; ++c) {
      best[c] = Floats{} + kLowest;
      where[c] = Ints{};
    }
    const auto look_at = [&](size_t c, size_t i, const Floats& x) PF_INLINED {
      const Ints better = x > best[c];
      best[c] = better ? x : best[c];
      where[c] = better ? Ints{} + static_cast<int32_t>(i) : where[c];
    };
    Floats x;
    size_t i = 0;
    for (; i + kChains * kLanes <= size; i += kChains * kLanes) {
      for (size_t c = 0; c < kChains; ++c) {
        load(data + i + c * kLanes, x);
        look_at(c, i + c * kLanes, x);
      }
    }
    for (; i < size; i += kLanes) {
      load_tail(data + i, std::min(size - i, kLanes), kLowest, x);
      look_at(0, i, x);
    }
    Peak peak{kLowest, 0};
    for (size_t c = 0; c < kChains; ++c) {
      for (size_t j = 0; j < kLanes; ++j) {
        const Peak lane{best[c][j], where[c][j] + static_cast<int32_t>(j)};
        if (lane.value > peak.value || (lane.value == peak.value && lane.value > kLowest && lane.index < peak.index)) {
          peak = lane;
        }
      }
    }
    return peak;
  });
}

bool are_numbers(std::span<const float> row) { return std::isfinite(exp_sum(row, find_peak(row).value, 1)); }

float exp_sum(std::span<const float> row, float peak, float scale) {
  return at_best_width([&]() PF_INLINED { return exp_row<false>(row, peak, scale, nullptr); });
}

float exp_into(std::span<const float> row, float peak, float scale, float* out) {
  return at_best_width([&]() PF_INLINED { return exp_row<true>(row, peak, scale, out); });
}

ExpMoments exp_moments(std::span<const float> row, float peak, float scale) {
  return at_best_width([&]() PF_INLINED {
    constexpr float kNoWeight = -100;  // whose exp is 0 here: keeps 0 * -inf out of the sum
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
      Floats weights = x * kLog2e;
      exp2_lanes(weights);
      sums += weights;
      weighted += weights * x;
    }
    return ExpMoments{sum_lanes(sums), sum_lanes(weighted)};
  });
}

void copy_masked(std::span<const float> row, const uint32_t* mask, float* out) {
  at_best_width([&]() PF_INLINED {
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
  });
}

float subtract_positive(std::span<float> out, const float* other, float factor) {
  return at_best_width([&]() PF_INLINED {
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
  });
}

void multiply(std::span<float> values, float factor) {
  at_best_width([&]() PF_INLINED {
    for (float& value : values) value *= factor;
  });
}

bool block_peaks(std::span<const float> row, float* peaks) {
  return at_best_width([&]() PF_INLINED {
    const float* data = row.data();
    const size_t size = row.size();
    Floats x;
    Ints unordered{};
    for (size_t begin = 0; begin < size; begin += kPeakBlock, ++peaks) {
      const size_t end = std::min(size, begin + kPeakBlock);
      Floats best = Floats{} + kLowest;
      size_t i = begin;
      for (; i + kLanes <= end; i += kLanes) {
        load(data + i, x);
        best = x > best ? x : best;
        unordered |= x != x;
      }
      load_tail(data + i, end - i, kLowest, x);
      best = x > best ? x : best;
      unordered |= x != x;
      *peaks = max_lanes(best);
    }
    int32_t any = 0;
    for (size_t i = 0; i < kLanes; ++i) any |= unordered[i];
    return any == 0;
  });
}

}  // namespace pilotfish
