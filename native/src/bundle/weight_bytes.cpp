#include "bundle/weight_bytes.h"

#include <algorithm>
#include <cstring>

#include "base/platform/pages.h"

namespace pilotfish {
namespace {

constexpr uint64_t kAligned = 4096;  // where tensors begin

uint64_t rounded(uint64_t num_bytes) { return (num_bytes + kAligned - 1) / kAligned * kAligned; }

// What is between the mapped ranges, without what pads the file behind them.
std::vector<FileRange> resident_ranges(uint64_t num_bytes, std::span<const FileRange> mapped) {
  std::vector<FileRange> ordered(mapped.begin(), mapped.end()), ranges;
  std::ranges::sort(ordered, {}, &FileRange::offset);
  ordered.push_back({num_bytes, 0});
  uint64_t begin = 0;
  for (const FileRange& range : ordered) {
    if (range.offset > begin) ranges.push_back({begin, range.offset - begin});
    begin = std::max(begin, rounded(range.end()));
  }
  return ranges;
}

uint64_t resident_bytes(const std::vector<FileRange>& ranges) {
  uint64_t sum = 0;
  for (const FileRange& range : ranges) sum += rounded(range.num_bytes);
  return sum;
}

}  // namespace

WeightBytes::WeightBytes(const BundleFile& file, uint64_t num_bytes, std::span<const FileRange> mapped)
    : WeightBytes(file, resident_ranges(num_bytes, mapped), !mapped.empty()) {}

WeightBytes::WeightBytes(const BundleFile& file, const std::vector<FileRange>& resident, bool is_mapped)
    : pages_(resident_bytes(resident), Pages::Size::kHuge) {
  std::byte* data = pages_.data();
  for (const FileRange& range : resident) {
    resident_.push_back({range, data});
    data += rounded(range.num_bytes);
  }
  if (!is_mapped) return;
  mapping_bytes_ = file.num_bytes();
  mapping_ = file.map();
  platform::read_in_order(mapping_, mapping_bytes_);
}

WeightBytes::~WeightBytes() {
  if (mapping_) platform::unmap_file(mapping_, mapping_bytes_);
}

std::byte* WeightBytes::at(FileRange tensor) const noexcept {
  for (const Part& part : resident_) {
    const bool holds = tensor.offset >= part.range.offset && tensor.end() <= part.range.end();
    if (holds) return part.data + (tensor.offset - part.range.offset);
  }
  return mapping_ + tensor.offset;
}

void WeightBytes::keep(uint64_t offset, std::span<const std::byte> piece) noexcept {
  for (const auto& [range, data] : resident_) {
    const uint64_t begin = std::max(offset, range.offset), end = std::min(offset + piece.size(), range.end());
    if (begin < end) std::memcpy(data + (begin - range.offset), piece.data() + (begin - offset), end - begin);
  }
}

}  // namespace pilotfish
