#include "sampling/row_select.h"

#include <algorithm>

#include "base/x86_features.h"
#include "sampling/row_math.h"

#ifdef __x86_64__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace pilotfish {
namespace {

size_t select_portable(std::span<const float> row, std::span<const float> peaks, float least, int32_t* ids,
                       float* values) {
  size_t count = 0;
  for (size_t block = 0; block < peaks.size(); ++block) {
    if (!(peaks[block] >= least)) continue;
    const size_t end = std::min(row.size(), (block + 1) * kPeakBlock);
    for (size_t i = block * kPeakBlock; i < end; ++i) {
      ids[count] = static_cast<int32_t>(i);
      values[count] = row[i];
      count += row[i] >= least ? 1 : 0;
    }
  }
  return count;
}

#ifdef __x86_64__
__attribute__((target("avx512f,popcnt"))) size_t select_avx512(std::span<const float> row, std::span<const float> peaks,
                                                               float least, int32_t* ids, float* values) {
  constexpr size_t kLanes = 16;
  const __m512 bound = _mm512_set1_ps(least);
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  size_t count = 0;
  for (size_t block = 0; block < peaks.size(); ++block) {
    if (!(peaks[block] >= least)) continue;
    const size_t end = std::min(row.size(), (block + 1) * kPeakBlock);
    for (size_t i = block * kPeakBlock; i < end; i += kLanes) {
      const auto inside = static_cast<__mmask16>(end - i >= kLanes ? 0xFFFF : (1u << (end - i)) - 1);
      const __m512 x = _mm512_maskz_loadu_ps(inside, row.data() + i);
      const __mmask16 found = _mm512_mask_cmp_ps_mask(inside, x, bound, _CMP_GE_OQ);
      const auto num_found = static_cast<unsigned>(__builtin_popcount(found));
      const auto written = static_cast<__mmask16>((1u << num_found) - 1);
      const __m512i indices = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int32_t>(i)));
      _mm512_mask_storeu_epi32(ids + count, written, _mm512_maskz_compress_epi32(found, indices));
      _mm512_mask_storeu_ps(values + count, written, _mm512_maskz_compress_ps(found, x));
      count += num_found;
    }
  }
  return count;
}
#elif defined(__aarch64__)
// Of the few blocks that hold a large element most groups of 16 have none: those take four comparisons.
size_t select_neon(std::span<const float> row, std::span<const float> peaks, float least, int32_t* ids, float* values) {
  constexpr size_t kLanes = 16;
  const float32x4_t bound = vdupq_n_f32(least);
  size_t count = 0;
  for (size_t block = 0; block < peaks.size(); ++block) {
    if (!(peaks[block] >= least)) continue;
    const size_t end = std::min(row.size(), (block + 1) * kPeakBlock);
    for (size_t i = block * kPeakBlock; i < end; i += kLanes) {
      const size_t group_end = std::min(end, i + kLanes);
      if (group_end - i == kLanes) {
        uint32x4_t found = vdupq_n_u32(0);
        for (size_t j = i; j < group_end; j += 4) found = vorrq_u32(found, vcgeq_f32(vld1q_f32(&row[j]), bound));
        if (vmaxvq_u32(found) == 0) continue;
      }
      for (size_t j = i; j < group_end; ++j) {
        ids[count] = static_cast<int32_t>(j);
        values[count] = row[j];
        count += row[j] >= least ? 1 : 0;
      }
    }
  }
  return count;
}
#endif

}  // namespace

size_t select_at_least(std::span<const float> row, std::span<const float> peaks, float least, int32_t* ids,
                       float* values) {
#ifdef __x86_64__
  if (x86_features().avx512) return select_avx512(row, peaks, least, ids, values);
#elif defined(__aarch64__)
  return select_neon(row, peaks, least, ids, values);
#endif
  return select_portable(row, peaks, least, ids, values);
}

}  // namespace pilotfish
