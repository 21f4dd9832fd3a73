#include "draft/likeliest.h"

#include <algorithm>
#include <limits>

namespace pilotfish {
namespace {

bool is_before(const Peak& a, const Peak& b) { return a.value > b.value || (a.value == b.value && a.index < b.index); }

}  // namespace

std::span<const Peak> Likeliest::find(std::span<const float> row, int32_t count) {
  count = std::min({count, kMost, static_cast<int32_t>(row.size())});
  if (count == 1) {
    found_[0] = find_peak(row);
    return {found_.data(), 1};
  }
  constexpr Peak kNothing{-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max()};
  block_peaks_.resize((row.size() + kPeakBlock - 1) / kPeakBlock);
  block_peaks(row, block_peaks_.data());
  Peak last{std::numeric_limits<float>::infinity(), -1};
  for (int32_t k = 0; k < count; ++k) {
    const auto block = size_t(find_peak(block_peaks_).index);
    const size_t end = std::min(row.size(), (block + 1) * kPeakBlock);
    Peak best = kNothing, next = kNothing;  // of the block's elements after the last one found
    for (size_t i = block * kPeakBlock; i < end; ++i) {
      const Peak element{row[i], static_cast<int32_t>(i)};
      if (!is_before(last, element)) continue;
      if (is_before(element, best)) {
        next = best;
        best = element;
      } else if (is_before(element, next)) {
        next = element;
      }
    }
    if (!(best.value > kNothing.value)) return {found_.data(), size_t(k)};
    found_[k] = last = best;
    block_peaks_[block] = next.value;
  }
  return {found_.data(), size_t(count)};
}

}  // namespace pilotfish
