#include "memory/prefix_tree.h"

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

PrefixTree::PrefixTree(BlockPool& pool, int32_t block_size, int32_t lookahead)
    : pool_(pool),
      block_size_(block_size),
      lookahead_(lookahead),
      whole_tokens_(block_size + lookahead),
      nodes_(pool.num_blocks()),
      tokens_(size_t(pool.num_blocks()) * whole_tokens_) {
  for (int32_t node = 0; node < pool.num_blocks(); ++node) nodes_[node].next_sibling = node + 1;
  nodes_.back().next_sibling = kNone;
}

PrefixTree::~PrefixTree() {
  while (evict_one()) {
  }
}

std::span<const int32_t> PrefixTree::tokens_of(int32_t node) const noexcept {
  return {tokens_.data() + size_t(node) * whole_tokens_, size_t(nodes_[node].num_tokens)};
}

PrefixTree::Child PrefixTree::best_child(int32_t parent, std::span<const int32_t> tokens) const noexcept {
  Child best;
  for (int32_t node = first_child_of(parent); node != kNone; node = nodes_[node].next_sibling) {
    const int32_t num_common = common_length(tokens_of(node), tokens);
    const int32_t num_draft = std::min({num_common, block_size_, nodes_[node].num_draft});
    const int32_t num_head = std::clamp(num_common - lookahead_, 0, nodes_[node].num_head);
    if (std::tuple(num_common, num_draft, num_head) > std::tuple(best.num_common, best.num_draft, best.num_head)) {
      best = {node, num_common, num_draft, num_head};
    }
  }
  return best;
}

PrefixTree::Match PrefixTree::find(std::span<const int32_t> tokens) const noexcept {
  Match match;
  for (;;) {
    const int32_t begin = match.num_whole_blocks * block_size_;
    const Child child = best_child(match.last_whole, tokens.subspan(begin));
    if (child.node == kNone) return match;
    match.num_target_tokens = begin + std::min(child.num_common, block_size_);
    if (match.num_draft_tokens == begin) match.num_draft_tokens += child.num_draft;
    if (match.num_head_tokens == begin) match.num_head_tokens += child.num_head;
    if (child.num_common < whole_tokens_) {
      match.partial = child.node;
      return match;
    }
    match.last_whole = child.node;
    ++match.num_whole_blocks;
  }
}

std::vector<int32_t> PrefixTree::full_blocks(const Match& match) const {
  std::vector<int32_t> blocks = whole_blocks(match);
  const bool fills_another = match.num_target_tokens == (match.num_whole_blocks + 1) * block_size_;
  if (fills_another) blocks.push_back(nodes_[match.partial].block_id);
  return blocks;
}

std::vector<int32_t> PrefixTree::whole_blocks(const Match& match) const {
  std::vector<int32_t> blocks(match.num_whole_blocks);
  int32_t node = match.last_whole;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block, node = nodes_[node].parent) {
    *block = nodes_[node].block_id;
  }
  return blocks;
}

PrefixTree::Adopted PrefixTree::adopt(const Match& match, int32_t num_blocks, int32_t num_own) {
  Adopted adopted{{.table = whole_blocks(match),
                   .num_target_tokens = match.num_target_tokens,
                   .num_draft_tokens = match.num_draft_tokens,
                   .num_head_tokens = match.num_head_tokens},
                  {}};
  std::vector<int32_t>& table = adopted.prefix.table;
  table.reserve(num_blocks);
  const size_t num_shared = std::max(match.num_whole_blocks - num_own, 0);
  if (match.partial != kNone) table.push_back(nodes_[match.partial].block_id);
  adopted.copies.reserve(table.size() - num_shared);
  touch(match.partial != kNone ? match.partial : match.last_whole);
  for (const int32_t block_id : table) pool_.share(block_id);

  const auto is_borrowed = [&](int32_t block_id) { return pool_.num_owners(block_id) > 1; };
  const auto num_needed = [&] {
    return num_blocks - static_cast<int32_t>(table.size()) +
           static_cast<int32_t>(std::count_if(table.begin() + num_shared, table.end(), is_borrowed));
  };
  while (num_needed() > pool_.num_available() && evict_one()) {
  }
  for (size_t index = num_shared; index < table.size(); ++index) {
    if (!is_borrowed(table[index])) continue;
    if (!pool_.book(1)) {  // whole blocks of other open sequences, and no room for copies of them
      const auto num_tokens = static_cast<int32_t>(index) * block_size_;
      for (size_t i = index; i < table.size(); ++i) pool_.release(table[i]);
      table.resize(index);
      for (int32_t* const count :
           {&adopted.prefix.num_target_tokens, &adopted.prefix.num_draft_tokens, &adopted.prefix.num_head_tokens}) {
        *count = std::min(*count, num_tokens);
      }
      break;
    }
    const int32_t own = pool_.take();
    adopted.copies.push_back({table[index], own});
    pool_.release(table[index]);
    table[index] = own;
  }
  return adopted;
}

void PrefixTree::make_room(int32_t num_blocks) noexcept {
  while (num_blocks > pool_.num_available() && evict_one()) {
  }
}

PrefixTree::Piece PrefixTree::piece_of(std::span<const int32_t> tokens, const CachedPrefix& ended,
                                       int32_t index) const noexcept {
  const int32_t begin = index * block_size_;
  const std::span<const int32_t> rest = tokens.subspan(begin);
  const int32_t num_slots = std::min(static_cast<int32_t>(rest.size()), block_size_);
  return {.tokens = rest.first(std::min(rest.size(), size_t(whole_tokens_))),
          .block_id = ended.table[index],
          .num_draft = std::clamp(ended.num_draft_tokens - begin, 0, num_slots),
          .num_head = std::clamp(ended.num_head_tokens - begin, 0, num_slots)};
}

void PrefixTree::retain(std::span<const int32_t> tokens, CachedPrefix ended) noexcept {
  assert(static_cast<int32_t>(tokens.size()) == ended.num_target_tokens);
  const auto num_blocks = static_cast<int32_t>(ended.table.size());
  assert(num_blocks == num_blocks_for(ended.num_target_tokens, block_size_));
  int32_t parent = kNone;
  for (int32_t index = 0; index < num_blocks; ++index) {
    const int32_t node = put(parent, piece_of(tokens, ended, index));
    if (node != kNone) parent = node;
  }
  touch(parent);
}

int32_t PrefixTree::put(int32_t parent, const Piece& piece) noexcept {
  int32_t found = kNone;
  for (int32_t node = first_child_of(parent), next; node != kNone; node = next) {
    next = nodes_[node].next_sibling;
    if (is_whole(piece.tokens) && std::ranges::equal(tokens_of(node), piece.tokens)) {
      merge(node, piece);
      found = node;
    } else if (!is_whole(piece.tokens) && covers(node, piece)) {
      pool_.release(piece.block_id);
      touch(node);
      return kNone;
    } else if (!is_whole(tokens_of(node)) && is_covered(node, piece)) {
      remove(node);
    }
  }
  return found != kNone ? found : add(parent, piece);
}

void PrefixTree::merge(int32_t node, const Piece& piece) noexcept {
  Node& known = nodes_[node];
  if (known.block_id == piece.block_id) {
    known.num_draft = std::max(known.num_draft, piece.num_draft);
    known.num_head = std::max(known.num_head, piece.num_head);
    pool_.release(piece.block_id);
    return;
  }
  const bool is_better = piece.num_draft >= known.num_draft && piece.num_head >= known.num_head &&
                         piece.num_draft + piece.num_head > known.num_draft + known.num_head;
  if (is_better) {
    pool_.release(std::exchange(known.block_id, piece.block_id));
    known.num_draft = piece.num_draft;
    known.num_head = piece.num_head;
  } else {
    pool_.release(piece.block_id);
  }
}

bool PrefixTree::is_covered(int32_t node, const Piece& piece) const noexcept {
  const Node& known = nodes_[node];
  return piece.num_draft >= known.num_draft && piece.num_head >= known.num_head &&
         common_length(tokens_of(node), piece.tokens) == known.num_tokens;
}

bool PrefixTree::covers(int32_t node, const Piece& piece) const noexcept {
  const Node& known = nodes_[node];
  return known.num_draft >= piece.num_draft && known.num_head >= piece.num_head &&
         common_length(tokens_of(node), piece.tokens) == static_cast<int32_t>(piece.tokens.size());
}

int32_t PrefixTree::add(int32_t parent, const Piece& piece) noexcept {
  assert(first_free_ != kNone);
  const int32_t node = first_free_;
  first_free_ = nodes_[node].next_sibling;
  int32_t& first = first_child_of(parent);
  nodes_[node] = {.block_id = piece.block_id,
                  .num_tokens = static_cast<int32_t>(piece.tokens.size()),
                  .num_draft = piece.num_draft,
                  .num_head = piece.num_head,
                  .parent = parent,
                  .first_child = kNone,
                  .next_sibling = first,
                  .older = kNone,
                  .newer = kNone};
  first = node;
  std::ranges::copy(piece.tokens, tokens_.begin() + size_t(node) * whole_tokens_);
  link_newest(node);
  return node;
}

// The least recently used of those that nothing follows: one whose block becomes free, if there is one.
bool PrefixTree::evict_one() noexcept {
  int32_t found = kNone;
  for (int32_t node = oldest_; node != kNone; node = nodes_[node].newer) {
    if (nodes_[node].first_child != kNone) continue;
    if (found == kNone) found = node;
    if (pool_.num_owners(nodes_[node].block_id) > 1) continue;
    found = node;
    break;
  }
  if (found == kNone) return false;
  remove(found);
  return true;
}

void PrefixTree::remove(int32_t node) noexcept {
  Node& removed = nodes_[node];
  assert(removed.first_child == kNone);
  int32_t* link = &first_child_of(removed.parent);
  while (*link != node) link = &nodes_[*link].next_sibling;
  *link = removed.next_sibling;
  unlink_use(node);
  pool_.release(removed.block_id);
  removed.next_sibling = std::exchange(first_free_, node);
}

void PrefixTree::touch(int32_t node) noexcept {
  for (; node != kNone; node = nodes_[node].parent) {
    unlink_use(node);
    link_newest(node);
  }
}

void PrefixTree::unlink_use(int32_t node) noexcept {
  const Node& used = nodes_[node];
  (used.older == kNone ? oldest_ : nodes_[used.older].newer) = used.newer;
  (used.newer == kNone ? newest_ : nodes_[used.newer].older) = used.older;
}

void PrefixTree::link_newest(int32_t node) noexcept {
  nodes_[node].older = newest_;
  nodes_[node].newer = kNone;
  (newest_ == kNone ? oldest_ : nodes_[newest_].newer) = node;
  newest_ = node;
}

void PrefixTree::append_blocks(std::vector<int32_t>& blocks) const {
  for (int32_t node = oldest_; node != kNone; node = nodes_[node].newer) blocks.push_back(nodes_[node].block_id);
}

int32_t PrefixTree::num_unshared() const noexcept {
  int32_t count = 0;
  for (int32_t node = oldest_; node != kNone; node = nodes_[node].newer) {
    count += pool_.num_owners(nodes_[node].block_id) == 1 ? 1 : 0;
  }
  return count;
}

}  // namespace pilotfish
