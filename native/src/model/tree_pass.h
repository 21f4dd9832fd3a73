// Rows of a token tree that go through a model together: all of them at verification, a level at a time while drafting.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/token_tree.h"
#include "model/model.h"

namespace pilotfish {

class TreePass {
 public:
  static constexpr int32_t kMaxRows = TokenTree::kMaxTokens + 1;

  // The rows that verify a tree: what comes out of row 0 follows last_id, of row i + 1 the drafted token i.
  static TreePass of(int32_t last_id, const TokenTree& tree) noexcept;

  // `mask` names the rows of this and of earlier passes that the row sees, from the root down to itself: its highest
  // bit is its own, and higher than that of the row before. Bit 0 is the root, the token of depth 0.
  void add(int32_t id, int32_t depth, uint64_t mask) noexcept;
  // Adds rows that nobody reads, up to num_rows of them in all, where row i has bit i. A chain stays one.
  void pad(int32_t num_rows) noexcept;
  int32_t num_rows() const noexcept { return num_rows_; }
  // The rows as a pass of whatever runs them, whose outputs they all are; to be asked for once. The root's slot in the
  // cache, and its position, is `context`; a row's slot is as far behind it as its bit says.
  Pass at(std::span<const int32_t> block_table, int32_t context);

 private:
  // Whether each row sees all bits below its own, and all rows are neighbours: as causal rows do.
  bool is_causal() const noexcept;

  int32_t num_rows_ = 0;
  std::array<int32_t, kMaxRows> ids_;
  std::array<int32_t, kMaxRows> positions_;  // relative to the root until the pass runs
  std::array<uint64_t, kMaxRows> masks_;
};

}  // namespace pilotfish
