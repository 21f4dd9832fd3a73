// The memory of the caches of one shape: a pool of blocks for the keys and one for the values of each. Knows nothing of
// sessions and of who owns a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/pages.h"
#include "bundle/manifest.h"
#include "device/cuda_device.h"

namespace pilotfish {

class CachePools {
 public:
  // Of so many caches, zero at first. device: nullptr for host memory.
  CachePools(std::shared_ptr<CudaDevice> device, const CacheShape& shape, CacheType type, int32_t num_caches,
             int32_t num_blocks, int32_t block_size);

  // A pool's first block: keys of cache 0, its values, keys of cache 1 and so on.
  std::byte* pool(int32_t index) const { return pools_ + static_cast<size_t>(index) * pool_bytes_; }
  // Bytes of a pool that its blocks take.
  size_t used_bytes() const { return block_bytes_ * num_blocks_; }

  // In all pools: what KvCache says of them.
  void copy_slot(std::span<const int32_t> block_table, int32_t from, int32_t to);
  void fill(int32_t block_id, int byte);
  void copy(int32_t from_block, int32_t to_block);
  uint64_t block_bytes() const noexcept { return block_bytes_ * num_pools_; }
  void read(std::span<const int32_t> blocks, const std::function<void(std::span<const std::byte>)>& take) const;
  bool write(std::span<const int32_t> blocks, const std::function<void(std::span<std::byte>)>& give);
  void make_resident(std::span<const int32_t> blocks) const noexcept;

 private:
  void copy_rows(std::span<const int32_t> block_table, int32_t from, int32_t to, size_t first, size_t width);
  // Copies bytes of every pool, from offset to offset.
  void copy_bytes(size_t source, size_t target, size_t num_bytes);

  // Whether the numbers of whole blocks are finite.
  bool is_finite(std::span<const std::byte> blocks) const noexcept;

  const std::shared_ptr<CudaDevice> device_;
  const CacheType type_;
  const int32_t num_heads_;
  const int32_t num_blocks_;
  const int32_t block_size_;
  const size_t num_pools_;
  const size_t scale_bytes_;  // of a head of a slot; 0: none
  const size_t row_bytes_;    // its elements
  const size_t block_bytes_;
  const size_t pool_bytes_;  // of all blocks, rounded up to a page; on a device to whole heads of a block
  std::optional<Pages> pages_;
  std::optional<CudaMemory> device_memory_;
  std::byte* pools_;
};

}  // namespace pilotfish
