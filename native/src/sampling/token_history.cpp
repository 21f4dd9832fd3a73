#include "sampling/token_history.h"

#include <bit>
#include <cassert>
#include <limits>

namespace pilotfish {

TokenHistory::TokenHistory(int32_t num_prompt_tokens, int32_t max_tokens, int32_t window)
    : num_prompt_tokens_(num_prompt_tokens),
      window_(window > 0 ? window : std::numeric_limits<int32_t>::max()),
      slots_(std::bit_ceil(2 * static_cast<size_t>(max_tokens)), kNowhere) {
  positions_.reserve(max_tokens);
  entries_.reserve(max_tokens);
}

void TokenHistory::push(int32_t id) noexcept {
  assert(positions_.size() < positions_.capacity());
  const int32_t position = size();
  int32_t& slot = slots_[find_slot(id)];
  if (slot == kNowhere) {
    slot = static_cast<int32_t>(entries_.size());
    entries_.push_back({.id = id, .last = kNowhere, .num_in_window = 0, .num_generated = 0});
  }
  positions_.push_back({.entry = slot, .previous = entries_[slot].last});
  entries_[slot].last = position;
  count(position, 1);
  if (position >= window_) count(position - window_, -1);
}

void TokenHistory::pop() noexcept {
  const int32_t position = size() - 1;
  if (position >= window_) count(position - window_, 1);
  count(position, -1);
  const Position popped = positions_.back();
  positions_.pop_back();
  entries_[popped.entry].last = popped.previous;
  if (popped.previous == kNowhere) {
    slots_[find_slot(entries_.back().id)] = kNowhere;
    entries_.pop_back();
  }
}

size_t TokenHistory::find_slot(int32_t id) const noexcept {
  const size_t mask = slots_.size() - 1;
  size_t slot = (static_cast<uint32_t>(id) * 0x9E3779B1u >> 7) & mask;  // Fibonacci hashing
  while (slots_[slot] != kNowhere && entries_[slots_[slot]].id != id) slot = (slot + 1) & mask;
  return slot;
}

void TokenHistory::count(int32_t position, int32_t change) noexcept {
  Entry& entry = entries_[positions_[position].entry];
  entry.num_in_window += change;
  if (position >= num_prompt_tokens_) entry.num_generated += change;
}

}  // namespace pilotfish
