// What of a row of logits the filters keep, by one thread block: temperature, top-k, top-p and min-p as in
// `src/sampling/sampler.h`.
#pragma once

#include <climits>
#include <cmath>

#include "round_kernels.cuh"
#include "row_sums.cuh"

namespace pilotfish::cuda {

/// Logits with their indices: a whole row, or what was picked from it.
struct Elements {
  const float* values;
  const int* indices;  // null: 0, 1, ...
  int count;

  template <class Use>
  __device__ void for_each(const Use& use) const {
    for (int i = threadIdx.x; i < count; i += kRowThreads) {
      if (indices) {
        use(values[i], indices[i]);
      } else {
        use(values[i], i);  // of shared memory too
      }
    }
  }
};

/// The largest order in low..high such that the elements of that order or a higher one have a measure of `wanted`; low
/// if there is none. Three orders a turn are tried.
template <class Measure>
__device__ uint32_t last_order(const Elements& elements, uint32_t low, uint32_t high, Sum wanted,
                               const Measure& measure, RowShared& shared) {
  while (low < high) {
    const Sum span = high - low;
    uint32_t tried[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) tried[i] = low + static_cast<uint32_t>((span * (i + 1) + 3) / 4);
    Sum reached[3] = {0, 0, 0};
    elements.for_each([&](float value, int) {
      const uint32_t order = order_of(value);
      const Sum part = measure(value);
#pragma unroll
      for (int i = 0; i < 3; ++i) reached[i] += order >= tried[i] ? part : 0;
    });
    sum_over_block(reached, shared);
    if (reached[2] >= wanted) {
      low = tried[2];
    } else if (reached[1] >= wanted) {
      low = tried[1];
      high = tried[2] - 1;
    } else if (reached[0] >= wanted) {
      low = tried[0];
      high = tried[1] - 1;
    } else {
      high = tried[0] - 1;
    }
  }
  return low;
}

/// Of the elements of that order, the index of the count-th.
__device__ inline int index_of_tie(const Elements& elements, uint32_t order, Sum count, int num_choices,
                                   RowShared& shared) {
  int low = 0, high = num_choices - 1;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    Sum found[1] = {0};
    elements.for_each([&](float value, int index) { found[0] += order_of(value) == order && index <= middle ? 1 : 0; });
    sum_over_block(found, shared);
    if (found[0] >= count) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// The row's elements that are not below `least`; all of it where they are too many.
__device__ inline Elements pick(const float* logits, int num_choices, float least, RowShared& shared) {
  if (threadIdx.x == 0) shared.num_candidates = 0;
  __syncthreads();
  const int lane = threadIdx.x % kWarpSize;
  for (int first = threadIdx.x - lane; first < num_choices; first += kRowThreads) {
    const int index = first + lane;
    const float value = index < num_choices ? __ldcg(logits + index) : -INFINITY;
    const bool is_wanted = index < num_choices && value >= least;
    const unsigned wanted = __ballot_sync(~0u, is_wanted);
    int place = 0;
    if (lane == 0 && wanted) place = atomicAdd(&shared.num_candidates, __popc(wanted));
    place = __shfl_sync(~0u, place, 0) + __popc(wanted & ((1u << lane) - 1));
    if (is_wanted && place < kMaxCandidates) {
      shared.values[place] = value;
      shared.indices[place] = index;
    }
  }
  __syncthreads();
  if (shared.num_candidates > kMaxCandidates) return {logits, nullptr, num_choices};
  return {shared.values, shared.indices, shared.num_candidates};
}

/// A logit that the k-th largest is not below, from the largest of what each thread has looked at.
__device__ inline float bound_of_kth(float largest, float peak, int k, RowShared& shared) {
  if (k > kRowThreads) return -INFINITY;
  shared.values[threadIdx.x] = largest;
  __syncthreads();
  const Elements elements{shared.values, nullptr, kRowThreads};
  const uint32_t order =
      last_order(elements, order_of(-INFINITY), order_of(peak), k, [](float) { return Sum{1}; }, shared);
  return __uint_as_float(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

/// What takes elements out of a row's distribution, in turn.
class Filters {
 public:
  /// `mass` is the weight of all elements.
  __device__ Filters(RowDistribution& row, Sum mass, RowShared& shared) : row_(row), mass_(mass), shared_(shared) {}

  /// The elements to look at: none that the filters drop first may be missing that would be kept.
  __device__ void look_at(const Elements& elements, float least) {
    elements_ = elements;
    row_.least = order_of(least);
  }

  __device__ void keep_top_k(int k) {
    row_.least = last_order(elements_, row_.least, order_of(row_.peak), k, [](float) { return Sum{1}; }, shared_);
    Sum kept[1] = {0};
    elements_.for_each([&](float value, int) { kept[0] += order_of(value) >= row_.least ? weight(value) : 0; });
    sum_over_block(kept, shared_);
    mass_ = kept[0];
  }

  __device__ void keep_top_p(float p, int num_choices) {
    const auto wanted = static_cast<Sum>(ceil(static_cast<double>(p) * static_cast<double>(mass_)));
    const auto measure = [this](float value) { return weight(value); };
    row_.least = last_order(elements_, row_.least, order_of(row_.peak), wanted, measure, shared_);
    Sum found[3] = {0, 0, 0};  // the weight above it; of ties with it, the weight and how many
    elements_.for_each([&](float value, int) {
      const uint32_t order = order_of(value);
      found[0] += order > row_.least ? weight(value) : 0;
      found[1] += order == row_.least ? weight(value) : 0;
      found[2] += order == row_.least ? 1 : 0;
    });
    sum_over_block(found, shared_);
    if (found[2] <= 1 || found[0] >= wanted) return;
    const Sum each = max(found[1] / found[2], Sum{1}), needed = (wanted - found[0] + each - 1) / each;
    if (needed < found[2]) row_.last = index_of_tie(elements_, row_.least, needed, num_choices, shared_);
  }

  __device__ void keep_min_p(float p, float temperature) {
    const uint32_t least = order_of(row_.peak + temperature * logf(p));
    if (least <= row_.least) return;
    row_.least = least;
    row_.last = INT_MAX;
  }

 private:
  __device__ Sum weight(float value) const { return fixed(weight_of(row_, value)); }

  RowDistribution& row_;
  Sum mass_;
  RowShared& shared_;
  Elements elements_ = {};
};

/// Leaves in `row` which elements are kept. `mass` is that of all choices; `largest` what this thread has seen.
__device__ inline void filter(const float* logits, int num_choices, const RoundSettings& settings, float largest,
                              Sum mass, RowDistribution& row, RowShared& shared) {
  const bool has_top_k = settings.top_k > 0 && settings.top_k < num_choices, has_top_p = settings.top_p < 1;
  const float temperature = 1 / settings.inverse_temperature;
  Filters filters(row, mass, shared);
  if (has_top_k || has_top_p) {
    float bound = 0;  // the first filter keeps nothing below it
    if (has_top_k) {
      bound = bound_of_kth(largest, row.peak, settings.top_k, shared);
    } else {
      const float rest = (1 - settings.top_p) * (static_cast<float>(mass) / kUnit) / static_cast<float>(num_choices);
      bound = row.peak + temperature * (logf(rest) - 1e-3f);
    }
    filters.look_at(pick(logits, num_choices, bound, shared), bound);
    if (has_top_k) filters.keep_top_k(settings.top_k);
    if (has_top_p) filters.keep_top_p(settings.top_p, num_choices);
  }
  if (settings.min_p > 0) filters.keep_min_p(settings.min_p, temperature);
  __syncthreads();  // the elements were read
}

/// The distribution of a row by all threads of the block; false if it is not of numbers. `log_sum` is found only where
/// it is wanted: it takes half of the time.
__device__ inline bool find_distribution(const LogitRows& rows, int index, const RoundSettings& settings,
                                         bool wants_log_sum, RowDistribution& row, RowShared& shared) {
  const float* const logits = rows.logits + static_cast<size_t>(index) * rows.num_logits;
  float largest = -INFINITY, largest_of_all = -INFINITY;
  bool is_number = true;
  for (int i = threadIdx.x; i < rows.num_logits; i += kRowThreads) {
    const float logit = __ldcg(logits + i);
    is_number = is_number && !isnan(logit);
    largest_of_all = fmaxf(largest_of_all, logit);
    if (i < rows.num_choices) largest = fmaxf(largest, logit);
  }
  row.peak = peak_over_block(largest, shared.peaks[0]);
  const float peak = peak_over_block(largest_of_all, shared.peaks[1]);
  row.scale = settings.inverse_temperature * 1.4426950408889634f;
  row.least = 0;
  row.last = INT_MAX;
  if (__syncthreads_or(!is_number) || !isfinite(row.peak) || !isfinite(peak)) return false;
  Sum sums[2] = {0, 0};
  const bool wants_mass = settings.top_k > 0 || settings.top_p < 1;
  for (int i = threadIdx.x; (wants_log_sum || wants_mass) && i < rows.num_logits; i += kRowThreads) {
    const float logit = __ldcg(logits + i);
    sums[0] += fixed(expf(logit - peak));
    if (i < rows.num_choices) sums[1] += fixed(weight_of(row, logit));
  }
  sum_over_block(sums, shared);
  row.log_sum = peak + logf(static_cast<float>(sums[0]) / kUnit);
  if (settings.top_k > 0 || settings.top_p < 1 || settings.min_p > 0) {
    filter(logits, rows.num_choices, settings, largest, sums[1], row, shared);
  }
  return true;
}

}  // namespace pilotfish::cuda
