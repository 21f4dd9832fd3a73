#include "lookup/lookup_index.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace pilotfish {

LookupIndex::LookupIndex(int32_t max_tokens) : tokens_(max_tokens) {
  for (Chain& chain : chains_) {
    chain.heads.assign(num_heads(max_tokens), kNone);
    chain.previous.resize(max_tokens);
  }
}

size_t LookupIndex::num_heads(int32_t max_tokens) noexcept { return std::bit_ceil(size_t(std::max(max_tokens, 16))); }

uint64_t LookupIndex::num_bytes(int32_t max_tokens) noexcept {
  return sizeof(int32_t) * (uint64_t(max_tokens) + kChainTokens.size() * (num_heads(max_tokens) + max_tokens));
}

void LookupIndex::clear() noexcept {
  size_ = 0;
  for (Chain& chain : chains_) std::fill(chain.heads.begin(), chain.heads.end(), kNone);
}

size_t LookupIndex::head_of(std::span<const int32_t> ngram) const noexcept {
  uint64_t hash = 0;
  for (const int32_t id : ngram) hash = (hash ^ static_cast<uint32_t>(id)) * 0x9E3779B97F4A7C15;
  return (hash >> 32) & (chains_[0].heads.size() - 1);
}

void LookupIndex::append(int32_t id) noexcept {
  assert(size_ < max_tokens());
  tokens_[size_++] = id;
  for (size_t i = 0; i < chains_.size(); ++i) {
    if (size_ < kChainTokens[i]) continue;
    int32_t& head = chains_[i].heads[head_of(tokens().last(kChainTokens[i]))];
    chains_[i].previous[size_ - 1] = head;
    head = size_ - 1;
  }
}

void LookupIndex::append(std::span<const int32_t> ids) noexcept {
  for (const int32_t id : ids) append(id);
}

int32_t LookupIndex::match_length(std::span<const int32_t> context, int32_t next) const noexcept {
  const int32_t most = std::min({static_cast<int32_t>(context.size()), next, kLongestMatch});
  const int32_t* end = context.data() + context.size();
  int32_t length = 0;
  while (length < most && tokens_[next - 1 - length] == end[-1 - length] && end[-1 - length] != kNone) ++length;
  return length;
}

std::span<LookupIndex::Match> LookupIndex::find(std::span<const int32_t> context,
                                                std::span<Match> matches) const noexcept {
  size_t num_found = 0;
  for (size_t i = 0; i < chains_.size() && num_found == 0 && !matches.empty(); ++i) {
    const auto num_tokens = static_cast<size_t>(kChainTokens[i]);
    if (context.size() < num_tokens) continue;
    int32_t last = chains_[i].heads[head_of(context.last(num_tokens))];
    for (int32_t visit = 0; last != kNone && visit < kMostVisits; ++visit, last = chains_[i].previous[last]) {
      const Match match{.next = last + 1, .length = match_length(context, last + 1)};
      if (match.next == size_ || match.length < kChainTokens[i]) continue;  // nothing follows, or another n-gram
      // Occurrences come from the latest to the earliest: a match goes behind those that are as long.
      size_t place = num_found;
      while (place > 0 && matches[place - 1].length < match.length) --place;
      if (place == matches.size()) continue;
      num_found = std::min(num_found + 1, matches.size());
      std::copy_backward(matches.begin() + place, matches.begin() + num_found - 1, matches.begin() + num_found);
      matches[place] = match;
    }
  }
  return matches.first(num_found);
}

}  // namespace pilotfish
