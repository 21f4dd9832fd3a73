#include "memory/kv_blocks.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "base/status.h"

namespace pilotfish {

BlockPool::BlockPool(int32_t num_blocks) : free_(num_blocks), reference_counts_(num_blocks, 0) {
  std::iota(free_.rbegin(), free_.rend(), 0);  // the lowest id on top: a lone sequence gets ascending blocks
}

bool BlockPool::book(int32_t count) noexcept {
  if (count > num_available()) return false;
  num_booked_ += count;
  return true;
}

void BlockPool::unbook(int32_t count) noexcept {
  assert(count <= num_booked_);
  num_booked_ -= count;
}

int32_t BlockPool::take() noexcept {
  assert(num_booked_ > 0 && !free_.empty());
  const int32_t block_id = free_.back();
  free_.pop_back();
  --num_booked_;
  reference_counts_[block_id] = 1;
  return block_id;
}

void BlockPool::untake(int32_t block_id) noexcept {
  assert(reference_counts_[block_id] == 1);
  release(block_id);
  ++num_booked_;
}

void BlockPool::share(int32_t block_id) noexcept {
  assert(reference_counts_[block_id] > 0);
  ++reference_counts_[block_id];
}

void BlockPool::release(int32_t block_id) noexcept {
  assert(reference_counts_[block_id] > 0);
  if (--reference_counts_[block_id] == 0) free_.push_back(block_id);  // the capacity is there: it was popped from here
}

void BlockPool::check(std::span<const std::span<const int32_t>> tables) const {
  std::vector<int32_t> owners(reference_counts_.size(), 0);
  for (const auto table : tables) {
    for (const int32_t block_id : table) {
      if (block_id < 0 || block_id >= num_blocks())
        fail(PF_INTERNAL, "a table names block ", block_id, " of ", num_blocks());
      ++owners[block_id];
    }
  }
  std::vector<int32_t> times_free(reference_counts_.size(), 0);
  for (const int32_t block_id : free_) ++times_free[block_id];
  for (int32_t block_id = 0; block_id < num_blocks(); ++block_id) {
    if (owners[block_id] != reference_counts_[block_id] || times_free[block_id] != (owners[block_id] == 0 ? 1 : 0)) {
      fail(PF_INTERNAL, "block ", block_id, " has ", owners[block_id], " owners, a reference count of ",
           reference_counts_[block_id], " and is free ", times_free[block_id], " times");
    }
  }
  if (num_available() < 0) fail(PF_INTERNAL, num_booked_, " blocks are booked but only ", free_.size(), " are free");
}

Sequence::Sequence(BlockPool& pool, int32_t block_size, int32_t max_tokens, CachedPrefix prefix)
    : pool_(pool),
      block_size_(block_size),
      max_tokens_(max_tokens),
      max_blocks_(num_blocks_for(max_tokens, block_size)),
      table_(std::move(prefix.table)),
      num_target_tokens_(prefix.num_target_tokens),
      num_draft_tokens_(prefix.num_draft_tokens),
      num_head_tokens_(prefix.num_head_tokens) {
  table_.reserve(max_blocks_);
  if (!pool_.book(num_booked())) {
    for (const int32_t block_id : table_) pool_.release(block_id);
    if (max_blocks_ > pool_.num_blocks()) {
      fail(PF_CONTEXT_FULL, max_tokens, " tokens need ", max_blocks_, " cache blocks of ", block_size,
           ", the engine has ", pool_.num_blocks());
    }
    fail(PF_ENGINE_BUSY, "the engine is busy: ", max_tokens, " tokens need ", max_blocks_, " cache blocks of ",
         block_size, ", other requests leave ", pool_.num_available(), " of ", pool_.num_blocks(),
         " free; close one, or open the engine with a larger num_sequences");
  }
}

Sequence::~Sequence() {
  for (const int32_t block_id : hand_over().table) pool_.release(block_id);
}

CachedPrefix Sequence::hand_over() noexcept {
  pool_.unbook(num_booked());
  max_blocks_ = 0;
  return {std::exchange(table_, {}), num_target_tokens_, num_draft_tokens_, num_head_tokens_};
}

void Sequence::grow_to(int32_t num_tokens) noexcept {
  assert(num_tokens <= max_tokens_);
  const size_t num_blocks = num_blocks_for(num_tokens, block_size_);
  while (table_.size() < num_blocks) table_.push_back(pool_.take());
}

void Sequence::shrink_to(int32_t num_tokens) noexcept {
  const size_t num_blocks = num_blocks_for(num_tokens, block_size_);
  for (; table_.size() > num_blocks; table_.pop_back()) pool_.untake(table_.back());
}

Reservation::Reservation(Sequence& sequence, int32_t num_tokens) noexcept : sequence_(&sequence) {
  sequence.grow_to(num_tokens);
}

Reservation::Reservation(Reservation&& other) noexcept : sequence_(std::exchange(other.sequence_, nullptr)) {}

Reservation::~Reservation() {
  if (sequence_) commit(sequence_->num_target_tokens_, sequence_->num_draft_tokens_);
}

void Reservation::commit(int32_t num_target_tokens, int32_t num_draft_tokens) noexcept {
  assert(sequence_);
  sequence_->num_target_tokens_ = num_target_tokens;
  sequence_->num_draft_tokens_ = num_draft_tokens;
  sequence_->shrink_to(std::max(num_target_tokens, num_draft_tokens));
  sequence_ = nullptr;
}

}  // namespace pilotfish
