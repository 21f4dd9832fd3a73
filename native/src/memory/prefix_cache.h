// What ended sequences leave behind: their tokens and the cache blocks that hold them, for requests that begin the same
// way. Arithmetic only; knows nothing of pages, models or devices.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memory/kv_blocks.h"

namespace pilotfish {

// Keeps blocks that nobody else needs at the moment. They count as taken in the pool, so whoever wants to book more
// than is available calls adopt(), which evicts the least recently used sequences first.
class PrefixCache {
 public:
  // What a slot holds is of its token and of `lookahead` further ones, at most 1: a head's cache is one token ahead.
  // The pool must outlive the cache.
  PrefixCache(BlockPool& pool, int32_t block_size, int32_t lookahead = 0);
  PrefixCache(PrefixCache&&) = delete;
  ~PrefixCache();

  struct BlockCopy {
    int32_t from, to;
  };
  struct Adopted {
    CachedPrefix prefix;
    // To be done in the pages of both models before either block is written to.
    std::optional<BlockCopy> copy;
  };
  // The longest beginning of `tokens` that is retained, for a sequence of num_blocks blocks, and room for booking the
  // rest of them as far as evicting gives it. Whole blocks are shared with their other owners: what is written to them
  // again, a draft that lags behind the target, are the same keys and values. The last block, when it is not full, is
  // the sequence's own: a copy, or the block itself if nobody else owns it any more. With a lookahead it never is full:
  // what follows its last token is another one.
  Adopted adopt(std::span<const int32_t> tokens, int32_t num_blocks);

  // Retains `tokens`, as many as `ended` has of the target. Takes over the blocks; drops what this one makes useless.
  void retain(std::vector<int32_t> tokens, CachedPrefix ended) noexcept;

  // Adds the tables of the retained sequences, for BlockPool::check().
  void append_tables(std::vector<std::span<const int32_t>>& tables) const;

 private:
  struct Entry {
    std::vector<int32_t> tokens;
    CachedPrefix cached;
  };

  // Shares the blocks of the best entry and makes that one the most recently used.
  CachedPrefix share_longest(std::span<const int32_t> tokens, int32_t num_blocks);
  bool evict_oldest() noexcept;
  void release(Entry& entry) noexcept;

  BlockPool& pool_;
  const int32_t block_size_;
  const int32_t lookahead_;
  std::vector<Entry> entries_;  // least recently used first
};

}  // namespace pilotfish
