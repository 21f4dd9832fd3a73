// The pages behind the cache blocks of one model, bound to its session once. Who owns a block is kv_blocks.h's subject.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "manifest.h"
#include "ort.h"
#include "pages.h"

namespace pilotfish {

class KvCache {
 public:
  // Binds key_cache.{layer} and value_cache.{layer}: [num_blocks, block_size, num_kv_heads, head_dim], zero at first.
  KvCache(const Ort& ort, OrtIoBinding* binding, const ModelEntry& model, int32_t num_blocks, int32_t block_size);

  // Copies the keys and values of one slot of a sequence to another, in all layers.
  void copy_slot(std::span<const int32_t> block_table, int32_t from, int32_t to) noexcept;

  // Makes a block resident with small finite numbers, so that timing a pass reads memory like a used cache's.
  void fill(int32_t block_id) noexcept;
  // Copies a block's keys and values of all layers.
  void copy(int32_t from_block, int32_t to_block) noexcept;

 private:
  std::byte* slot(std::span<const int32_t> block_table, int32_t index, size_t pool) noexcept;

  const int32_t block_size_;
  size_t block_bytes_;  // of one layer's keys or values
  size_t pool_bytes_;   // the same of all blocks, rounded up to a page
  Pages pages_;
  std::vector<OrtValuePtr> tensors_;
};

}  // namespace pilotfish
