#include "model/cache_pools.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/platform/pages.h"

namespace pilotfish {
namespace {

constexpr size_t kPageBytes = 4096;

// Whether no number has all exponent bits set, which infinities and NaN have.
template <typename Word>
bool all_finite(std::span<const std::byte> bytes, Word exponent) noexcept {
  Word found = 0;
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    found |= static_cast<Word>((word & exponent) == exponent);
  }
  return found == 0;
}

// Blocks that follow each other in a pool, from the first of `blocks` on.
size_t count_run(std::span<const int32_t> blocks) noexcept {
  size_t count = 1;
  while (count < blocks.size() && blocks[count] == blocks[0] + static_cast<int32_t>(count)) ++count;
  return count;
}

size_t rounded(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

CachePools::CachePools(std::shared_ptr<CudaDevice> device, const CacheShape& shape, CacheType type, int32_t num_caches,
                       int32_t num_blocks, int32_t block_size)
    : device_(std::move(device)),
      type_(type),
      num_heads_(shape.num_kv_heads),
      num_blocks_(num_blocks),
      block_size_(block_size),
      num_pools_(size_t{2} * num_caches),
      scale_bytes_(format_of(type).scale_bytes),
      row_bytes_(cache_row_bytes(type, shape.head_dim) - scale_bytes_),
      block_bytes_((row_bytes_ + scale_bytes_) * num_heads_ * block_size),
      pool_bytes_(rounded(block_bytes_ * num_blocks, device_ ? row_bytes_ * block_size : kPageBytes)) {
  if (device_) {
    pools_ = device_memory_.emplace(device_, pool_bytes_ * num_pools_).data();
    device_->fill(pools_, 0, pool_bytes_, pool_bytes_, num_pools_);
  } else {
    pools_ = pages_.emplace(pool_bytes_ * num_pools_, Pages::Size::kSmall).data();
  }
}

void CachePools::copy_slot(std::span<const int32_t> block_table, int32_t from, int32_t to) {
  copy_rows(block_table, from, to, 0, row_bytes_);
  if (scale_bytes_ > 0) copy_rows(block_table, from, to, size_t(block_size_) * num_heads_ * row_bytes_, scale_bytes_);
}

// Rows of `width` bytes of a slot's heads, which begin at `first` in each block. In host memory a slot's heads follow
// each other, on a device a head's slots.
void CachePools::copy_rows(std::span<const int32_t> block_table, int32_t from, int32_t to, size_t first, size_t width) {
  const auto place = [&](int32_t index, size_t slot_bytes) {
    return block_table[index / block_size_] * block_bytes_ + first + index % block_size_ * slot_bytes;
  };
  if (device_) {
    return device_->copy_strided(pools_ + place(to, width), pools_ + place(from, width), block_size_ * width, width,
                                 num_heads_, pool_bytes_, num_pools_);
  }
  copy_bytes(place(from, num_heads_ * width), place(to, num_heads_ * width), num_heads_ * width);
}

void CachePools::copy_bytes(size_t source, size_t target, size_t num_bytes) {
  if (device_) return device_->copy(pools_ + target, pools_ + source, pool_bytes_, num_bytes, num_pools_);
  for (size_t pool = 0; pool < num_pools_; ++pool) {
    std::memcpy(pools_ + pool * pool_bytes_ + target, pools_ + pool * pool_bytes_ + source, num_bytes);
  }
}

void CachePools::fill(int32_t block_id, int byte) {
  std::byte* const block = pools_ + block_id * block_bytes_;
  if (device_) return device_->fill(block, byte, pool_bytes_, block_bytes_, num_pools_);
  for (size_t pool = 0; pool < num_pools_; ++pool) std::memset(block + pool * pool_bytes_, byte, block_bytes_);
}

void CachePools::copy(int32_t from_block, int32_t to_block) {
  copy_bytes(from_block * block_bytes_, to_block * block_bytes_, block_bytes_);
}

void CachePools::read(std::span<const int32_t> blocks,
                      const std::function<void(std::span<const std::byte>)>& take) const {
  std::vector<std::byte> copy(device_ ? block_bytes_ : 0);
  for (size_t pool = 0; pool < num_pools_; ++pool) {
    for (std::span<const int32_t> rest = blocks; !rest.empty();) {
      const std::byte* const first = pools_ + pool * pool_bytes_ + rest[0] * block_bytes_;
      const size_t count = device_ ? 1 : count_run(rest);
      if (device_) {
        device_->download(copy.data(), first, block_bytes_);
        device_->synchronize();
      }
      take({device_ ? copy.data() : first, count * block_bytes_});
      rest = rest.subspan(count);
    }
  }
}

bool CachePools::write(std::span<const int32_t> blocks, const std::function<void(std::span<std::byte>)>& give) {
  std::vector<std::byte> copy(device_ ? block_bytes_ : 0);
  bool all_are_finite = true;
  for (size_t pool = 0; pool < num_pools_; ++pool) {
    for (std::span<const int32_t> rest = blocks; !rest.empty();) {
      std::byte* const first = pools_ + pool * pool_bytes_ + rest[0] * block_bytes_;
      const size_t count = device_ ? 1 : count_run(rest);
      const std::span<std::byte> given(device_ ? copy.data() : first, count * block_bytes_);
      give(given);
      all_are_finite = all_are_finite && is_finite(given);
      if (device_) {
        device_->upload(first, copy.data(), block_bytes_);
        device_->synchronize();
      }
      rest = rest.subspan(count);
    }
  }
  return all_are_finite;
}

void CachePools::make_resident(std::span<const int32_t> blocks) const noexcept {
  if (device_) return;
  for (size_t pool = 0; pool < num_pools_; ++pool) {
    for (std::span<const int32_t> rest = blocks; !rest.empty(); rest = rest.subspan(count_run(rest))) {
      platform::make_resident(pools_ + pool * pool_bytes_ + rest[0] * block_bytes_, count_run(rest) * block_bytes_);
    }
  }
}

bool CachePools::is_finite(std::span<const std::byte> blocks) const noexcept {
  if (type_ == CacheType::kF32) return all_finite<uint32_t>(blocks, 0x7f800000);
  if (scale_bytes_ == 0) return all_finite<uint16_t>(blocks, 0x7c00);
  for (; !blocks.empty(); blocks = blocks.subspan(block_bytes_)) {
    const size_t scales = scale_bytes_ * num_heads_ * block_size_;
    if (!all_finite<uint16_t>(blocks.first(block_bytes_).last(scales), 0x7c00)) return false;
  }
  return true;
}

}  // namespace pilotfish
