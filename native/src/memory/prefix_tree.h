// What ended sequences leave behind, as a tree of cache blocks: sequences that begin alike have the blocks of their
// beginning in common. Arithmetic only; knows nothing of pages, models or devices.
//
// A node is a block. Whole blocks are shared: many open sequences and the tree own one block together, and nobody
// writes anything else into it than what it holds. The block that is only partly filled, or partly a new prompt's, is
// copied.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/kv_blocks.h"

namespace pilotfish {

class PrefixTree {
 public:
  // What a slot holds is of its token and of `lookahead` further ones, at most 1: a head's cache is one token ahead.
  // Then a whole block is known by its tokens and the one after them. The pool must outlive the tree, which has room
  // for all blocks of it from the beginning.
  PrefixTree(BlockPool& pool, int32_t block_size, int32_t lookahead = 0);
  PrefixTree(PrefixTree&&) = delete;
  ~PrefixTree();

  // The beginning of some tokens that is cached. Valid until the tree changes.
  struct Match {
    int32_t num_target_tokens = 0;
    int32_t num_draft_tokens = 0;  // from the first token on, as the other models'
    int32_t num_head_tokens = 0;
    int32_t num_whole_blocks = 0;
    int32_t last_whole = -1;  // nodes; -1: none
    int32_t partial = -1;
  };
  Match find(std::span<const int32_t> tokens) const noexcept;
  // The blocks of a match all of whose slots it has, first to last.
  std::vector<int32_t> full_blocks(const Match& match) const;

  struct BlockCopy {
    int32_t from, to;
  };
  struct Adopted {
    CachedPrefix prefix;
    // To be done in the pages of all models before any of the blocks is written to.
    std::vector<BlockCopy> copies;
  };
  // A match for a sequence of num_blocks blocks, and room for booking the rest of them as far as evicting gives it.
  // Whole blocks are shared, but for the last num_own of them, into which the sequence is to write what differs. Those
  // and a partial one are copies, or the blocks themselves if nobody else owns them any more.
  Adopted adopt(const Match& match, int32_t num_blocks, int32_t num_own = 0);
  // Evicts until num_blocks can be booked, or the tree is empty.
  void make_room(int32_t num_blocks) noexcept;

  // Adds the blocks of an ended sequence, which holds `tokens`, as many as it has of the target. Takes them over. Where
  // the tree has the tokens of a block already, it keeps the block that more is known of and releases the other one.
  void retain(std::span<const int32_t> tokens, CachedPrefix ended) noexcept;

  // Adds the block of each node, for BlockPool::check().
  void append_blocks(std::vector<int32_t>& blocks) const;
  // Blocks that no open sequence owns too.
  int32_t num_unshared() const noexcept;

 private:
  static constexpr int32_t kNone = -1;

  struct Node {
    int32_t block_id;
    int32_t num_tokens;  // that it is known by: block_size + lookahead of a whole block, fewer of a partial one
    int32_t num_draft;   // slots from its first on that the draft's cache holds
    int32_t num_head;
    int32_t parent;
    int32_t first_child;
    int32_t next_sibling;  // of a free node: the next free one
    int32_t older, newer;  // by their last use; a parent is never older than its children
  };
  // What a sequence has of one of its blocks.
  struct Piece {
    std::span<const int32_t> tokens;
    int32_t block_id;
    int32_t num_draft;
    int32_t num_head;
  };

  std::vector<int32_t> whole_blocks(const Match& match) const;
  std::span<const int32_t> tokens_of(int32_t node) const noexcept;
  int32_t first_child_of(int32_t node) const noexcept { return node == kNone ? first_root_ : nodes_[node].first_child; }
  int32_t& first_child_of(int32_t node) noexcept { return node == kNone ? first_root_ : nodes_[node].first_child; }
  bool is_whole(std::span<const int32_t> tokens) const noexcept { return int32_t(tokens.size()) == whole_tokens_; }
  Piece piece_of(std::span<const int32_t> tokens, const CachedPrefix& ended, int32_t index) const noexcept;
  // The child that has most of the tokens, and how many.
  struct Child {
    int32_t node = kNone;
    int32_t num_common = 0;
    int32_t num_draft = 0;
    int32_t num_head = 0;
  };
  Child best_child(int32_t parent, std::span<const int32_t> tokens) const noexcept;
  // Puts a piece below `parent`, and returns its node; kNone: another one has all of it and more.
  int32_t put(int32_t parent, const Piece& piece) noexcept;
  void merge(int32_t node, const Piece& piece) noexcept;
  int32_t add(int32_t parent, const Piece& piece) noexcept;
  // Whether the piece has all that the node has, and the other way round.
  bool is_covered(int32_t node, const Piece& piece) const noexcept;
  bool covers(int32_t node, const Piece& piece) const noexcept;
  bool evict_one() noexcept;
  void remove(int32_t node) noexcept;
  // Makes the node and those above it the most recently used.
  void touch(int32_t node) noexcept;
  void unlink_use(int32_t node) noexcept;
  void link_newest(int32_t node) noexcept;

  BlockPool& pool_;
  const int32_t block_size_;
  const int32_t lookahead_;
  const int32_t whole_tokens_;
  std::vector<Node> nodes_;      // [num_blocks]: each owns a block of its own
  std::vector<int32_t> tokens_;  // [num_blocks, whole_tokens]
  int32_t first_free_ = 0;
  int32_t first_root_ = kNone;
  int32_t oldest_ = kNone, newest_ = kNone;
};

}  // namespace pilotfish
