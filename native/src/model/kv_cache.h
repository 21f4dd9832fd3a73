// The caches of one model, bound to its session once. Who owns a block is kv_blocks.h's subject.
#pragma once

#include <cstdint>
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

 private:
  std::vector<CachePools> pools_;  // of each shape
  std::vector<OrtValuePtr> tensors_;
};

}  // namespace pilotfish
