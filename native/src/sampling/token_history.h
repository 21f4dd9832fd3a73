// What penalties and n-gram bans need to know of the tokens before a row: how often each occurs in a window over the
// last ones, and where. Tokens come and go at the end; that costs the same however long the sequence is, and allocates
// nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pilotfish {

class TokenHistory {
 public:
  static constexpr int32_t kNowhere = -1;

  // A token that occurs in the sequence.
  struct Entry {
    int32_t id;
    int32_t last;           // its latest position
    int32_t num_in_window;  // occurrences in the window
    int32_t num_generated;  // of these, the ones after the prompt
  };

  // At most max_tokens are pushed. `window` is the number of last tokens that are counted; 0: all.
  TokenHistory(int32_t num_prompt_tokens, int32_t max_tokens, int32_t window);

  int32_t size() const noexcept { return static_cast<int32_t>(positions_.size()); }
  int32_t operator[](int32_t position) const noexcept { return entries_[positions_[position].entry].id; }
  void push(int32_t id) noexcept;
  void pop() noexcept;

  // One for each distinct token, in the order of their first occurrences.
  std::span<const Entry> entries() const noexcept { return entries_; }
  // The latest position that holds the last token as well, before the last one; then the one before a position.
  int32_t previous(int32_t position) const noexcept { return positions_[position].previous; }

 private:
  struct Position {
    int32_t entry;     // index into entries_
    int32_t previous;  // the position before this one that holds the same token
  };

  // The slot of slots_ that holds the token's entry, or the empty one where it belongs.
  size_t find_slot(int32_t id) const noexcept;
  void count(int32_t position, int32_t change) noexcept;

  const int32_t num_prompt_tokens_;
  const int32_t window_;
  std::vector<Position> positions_;
  // A stack: the entry made last belongs to the first occurrence that is popped next. Hence an open-addressing table
  // may forget it by emptying its slot.
  std::vector<Entry> entries_;
  std::vector<int32_t> slots_;  // indices of entries_ or kNowhere; a power of two, at most half of them in use
};

}  // namespace pilotfish
