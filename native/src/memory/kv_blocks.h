// Who owns which cache block: ids, reference counts and tables. Arithmetic only; knows nothing of pages, ORT or
// devices. Target and draft keep the same token in the same slot of the same block, each in pages of its own, so that
// one table serves both and a round moves both in one transaction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pilotfish {

// A pool of block ids. A sequence first books all blocks that it may ever need, so that a round never fails for want of
// one, then takes them as it grows.
class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);

  int32_t num_blocks() const noexcept { return static_cast<int32_t>(reference_counts_.size()); }
  // Neither taken nor booked.
  int32_t num_available() const noexcept { return static_cast<int32_t>(free_.size()) - num_booked_; }

  // False, and no change, when fewer than `count` blocks are available.
  [[nodiscard]] bool book(int32_t count) noexcept;
  void unbook(int32_t count) noexcept;

  // Turns one booked block into a taken one with one owner.
  int32_t take() noexcept;
  // Takes back what take() gave: the block becomes a booked one again.
  void untake(int32_t block_id) noexcept;
  // One owner more, one owner less; the last one frees the block.
  void share(int32_t block_id) noexcept;
  void release(int32_t block_id) noexcept;
  int32_t num_owners(int32_t block_id) const noexcept { return reference_counts_[block_id]; }

  // Throws PF_INTERNAL unless free + used == total, every free block is free once and without owner, and the owners are
  // exactly those of the given tables.
  void check(std::span<const std::span<const int32_t>> tables) const;

 private:
  std::vector<int32_t> free_;  // a stack
  std::vector<int32_t> reference_counts_;
  int32_t num_booked_ = 0;
};

inline constexpr int32_t num_blocks_for(int32_t num_tokens, int32_t block_size) noexcept {
  return (num_tokens + block_size - 1) / block_size;
}

// Tokens that both models' caches hold, and the blocks they are in. Whoever has it owns each block once.
struct CachedPrefix {
  std::vector<int32_t> table;
  int32_t num_target_tokens = 0;
  int32_t num_draft_tokens = 0;  // at most num_target_tokens: the draft may lag behind
  int32_t num_head_tokens = 0;  // slots of a head's cache, each of its token and the one after it: less than the target
};

// The cache of one request: a table of blocks and how many tokens each model has committed into them. Move-only.
class Sequence {
 public:
  // Starts with a prefix, whose blocks it takes over, and books the rest of max_tokens; throws PF_ENGINE_BUSY when
  // others hold what it lacks, PF_CONTEXT_FULL when the whole pool is too small. The pool must outlive the sequence.
  Sequence(BlockPool& pool, int32_t block_size, int32_t max_tokens, CachedPrefix prefix = {});
  Sequence(Sequence&&) = delete;
  ~Sequence();

  int32_t max_tokens() const noexcept { return max_tokens_; }
  int32_t num_target_tokens() const noexcept { return num_target_tokens_; }
  int32_t num_draft_tokens() const noexcept { return num_draft_tokens_; }
  int32_t num_head_tokens() const noexcept { return num_head_tokens_; }
  void set_num_head_tokens(int32_t num_tokens) noexcept { num_head_tokens_ = num_tokens; }
  std::span<const int32_t> block_table() const noexcept { return table_; }

  // Ends the sequence and hands its blocks over.
  CachedPrefix hand_over() noexcept;

 private:
  friend class Reservation;

  int32_t num_booked() const noexcept { return max_blocks_ - static_cast<int32_t>(table_.size()); }
  void grow_to(int32_t num_tokens) noexcept;
  void shrink_to(int32_t num_tokens) noexcept;

  BlockPool& pool_;
  const int32_t block_size_;
  const int32_t max_tokens_;
  int32_t max_blocks_;
  std::vector<int32_t> table_;
  int32_t num_target_tokens_ = 0;
  int32_t num_draft_tokens_ = 0;
  int32_t num_head_tokens_ = 0;
};

// Room for one round. commit() keeps what was decided, for both models at once; without it the destructor puts the
// sequence back to where it was. Move-only, and the sequence must outlive it.
class Reservation {
 public:
  // Slots up to num_tokens; at most the sequence's max_tokens.
  Reservation(Sequence& sequence, int32_t num_tokens) noexcept;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation();

  void commit(int32_t num_target_tokens, int32_t num_draft_tokens) noexcept;

 private:
  Sequence* sequence_;  // nullptr once committed or moved from
};

}  // namespace pilotfish
