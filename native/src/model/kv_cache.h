// The pages behind the cache blocks of one model, bound to its session once. Who owns a block is kv_blocks.h's subject.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/pages.h"
#include "bundle/manifest.h"
#include "device/cuda_device.h"
#include "model/session.h"

namespace pilotfish {

class KvCache {
 public:
  // Binds key_cache.{layer} and value_cache.{layer} of GRAPH.md, zero at first, where the session runs. Throws
  // PF_BUNDLE_CORRUPT unless its graph has them as the manifest says.
  KvCache(Session& session, const ModelEntry& model, int32_t num_blocks, int32_t block_size);

  // Copies the row of slot first_slot + rows[i] of a sequence to slot first_slot + i, for each i in order; `rows`
  // ascends, so that no row is overwritten before it is read. Keys are rotated by a token's position, which for a path
  // of a tree is its place in the path: what comes out has the bits that a prefill of the path writes.
  void compact(std::span<const int32_t> block_table, int32_t first_slot, std::span<const int32_t> rows);

  // Makes a block resident with small finite numbers, so that timing a pass reads memory like a used cache's.
  void fill(int32_t block_id);
  // Copies a block's keys and values of all layers.
  void copy(int32_t from_block, int32_t to_block);

 private:
  // In all layers.
  void copy_slot(std::span<const int32_t> block_table, int32_t from, int32_t to);
  void copy_rows(std::span<const int32_t> block_table, int32_t from, int32_t to, size_t first, size_t width);
  // Copies bytes of every pool, from offset to offset.
  void copy_bytes(size_t source, size_t target, size_t num_bytes);

  const int32_t block_size_;
  const int32_t num_heads_;
  const size_t scale_bytes_;  // of a head of a slot of one layer's keys or values; 0: none
  const size_t row_bytes_;    // its elements
  size_t block_bytes_;        // of one layer's keys or values
  size_t pool_bytes_;         // the same of all blocks, rounded up to a page; on a device to whole heads of a block
  const std::shared_ptr<CudaDevice> device_;
  std::optional<Pages> pages_;
  std::optional<CudaMemory> device_memory_;
  std::byte* pools_;
  std::vector<OrtValuePtr> tensors_;
};

}  // namespace pilotfish
