#include "memory/prefix_cache.h"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

namespace pilotfish {
namespace {

int32_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) noexcept {
  return static_cast<int32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, int32_t block_size, int32_t lookahead)
    : pool_(pool), block_size_(block_size), lookahead_(lookahead) {
  entries_.reserve(pool.num_blocks());  // retain() allocates nothing
}

PrefixCache::~PrefixCache() {
  while (evict_oldest()) {
  }
}

PrefixCache::Adopted PrefixCache::adopt(std::span<const int32_t> tokens, int32_t num_blocks) {
  Adopted adopted{share_longest(tokens, num_blocks), std::nullopt};
  std::vector<int32_t>& table = adopted.prefix.table;
  bool is_borrowed = adopted.prefix.num_target_tokens % block_size_ != 0;
  const auto num_missing = [&] {
    return num_blocks - static_cast<int32_t>(table.size()) + (is_borrowed ? 1 : 0) - pool_.num_available();
  };
  while (num_missing() > 0 && evict_oldest()) is_borrowed = is_borrowed && pool_.num_owners(table.back()) > 1;
  // Without entries nothing is borrowed, so a block for the copy is there.
  if (is_borrowed && pool_.book(1)) {
    const int32_t own = pool_.take();
    adopted.copy = {table.back(), own};
    pool_.release(table.back());
    table.back() = own;
  }
  return adopted;
}

CachedPrefix PrefixCache::share_longest(std::span<const int32_t> tokens, int32_t num_blocks) {
  CachedPrefix found;
  auto best = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const int32_t num_common = common_length(tokens, entry->tokens);
    const int32_t num_target = num_common % block_size_ == 0 ? std::max(num_common - lookahead_, 0) : num_common;
    const int32_t num_draft = std::min(num_target, entry->cached.num_draft_tokens);
    const int32_t num_head = std::clamp(num_common - lookahead_, 0, entry->cached.num_head_tokens);
    if (std::tuple(num_target, num_draft, num_head) <=
        std::tuple(found.num_target_tokens, found.num_draft_tokens, found.num_head_tokens)) {
      continue;
    }
    found.num_target_tokens = num_target;
    found.num_draft_tokens = num_draft;
    found.num_head_tokens = num_head;
    best = entry;
  }
  if (best == entries_.end()) return found;
  found.table.reserve(num_blocks);
  const auto begin = best->cached.table.begin();
  found.table.assign(begin, begin + num_blocks_for(found.num_target_tokens, block_size_));
  for (const int32_t block_id : found.table) pool_.share(block_id);
  std::rotate(best, best + 1, entries_.end());
  return found;
}

void PrefixCache::retain(std::vector<int32_t> tokens, CachedPrefix ended) noexcept {
  Entry entry{std::move(tokens), std::move(ended)};
  assert(static_cast<int32_t>(entry.tokens.size()) == entry.cached.num_target_tokens);
  const auto covers = [](const Entry& longer, const Entry& shorter) {
    return longer.cached.num_draft_tokens >= shorter.cached.num_draft_tokens &&
           longer.cached.num_head_tokens >= shorter.cached.num_head_tokens &&
           common_length(longer.tokens, shorter.tokens) == shorter.cached.num_target_tokens;
  };
  std::erase_if(entries_, [&](Entry& other) {
    if (!covers(entry, other)) return false;
    release(other);
    return true;
  });
  const auto longer = std::ranges::find_if(entries_, [&](const Entry& other) { return covers(other, entry); });
  if (longer != entries_.end()) {
    std::rotate(longer, longer + 1, entries_.end());
    release(entry);
    return;
  }
  if (entries_.size() == entries_.capacity()) evict_oldest();
  entries_.push_back(std::move(entry));
}

void PrefixCache::append_tables(std::vector<std::span<const int32_t>>& tables) const {
  for (const Entry& entry : entries_) tables.push_back(entry.cached.table);
}

bool PrefixCache::evict_oldest() noexcept {
  if (entries_.empty()) return false;
  release(entries_.front());
  entries_.erase(entries_.begin());
  return true;
}

void PrefixCache::release(Entry& entry) noexcept {
  for (const int32_t block_id : entry.cached.table) pool_.release(block_id);
}

}  // namespace pilotfish
