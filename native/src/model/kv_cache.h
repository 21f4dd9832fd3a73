// The caches of one model, bound to its session once. Who owns a block is kv_blocks.h's subject.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bundle/manifest.h"
#include "model/cache_pools.h"
#include "model/session.h"

namespace pilotfish {

class KvCache {
 public:
  // Binds key_cache.{i} and value_cache.{i} of GRAPH.md, zero at first, where the session runs. Throws
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

  // Bytes of a block in all layers, as a device keeps them.
  uint64_t block_bytes() const noexcept;
  // Gives `take` the bytes of whole blocks, in pieces whose sequence does not depend on where the blocks are: a layer's
  // keys in all blocks, its values, and so on.
  void read(std::span<const int32_t> blocks, const std::function<void(std::span<const std::byte>)>& take) const;
  // The other way round. False if one of the numbers is infinite or not a number.
  bool write(std::span<const int32_t> blocks, const std::function<void(std::span<std::byte>)>& give);
  // Takes from the system now what write() would take page by page. Several threads may.
  void make_resident(std::span<const int32_t> blocks) const noexcept;

 private:
  std::vector<CachePools> pools_;  // of each shape
  std::vector<OrtValuePtr> tensors_;
};

}  // namespace pilotfish
