// Where the last tokens of a text occurred before: lookup drafts are what followed there. Hash chains over n-grams, as
// in LZ77 (Ziv and Lempel, "A universal algorithm for sequential data compression", 1977). Knows nothing of models.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pilotfish {

class LookupIndex {
 public:
  static constexpr int32_t kLongestMatch = 16;  // tokens; a longer one is reported as this
  static constexpr int32_t kMostVisits = 128;   // occurrences of an n-gram that a search looks at, the latest ones
  static constexpr int32_t kNone = -1;          // an id that matches nothing, to be put between two texts

  struct Match {
    int32_t next;    // index of the token after the occurrence
    int32_t length;  // tokens before `next` that agree with the end of the context, 1 to kLongestMatch
  };

  // Holds up to max_tokens and never allocates again; num_bytes(max_tokens) is all it takes.
  explicit LookupIndex(int32_t max_tokens);
  static uint64_t num_bytes(int32_t max_tokens) noexcept;

  // O(1). At most max_tokens may be appended between two clear().
  void append(int32_t id) noexcept;
  void append(std::span<const int32_t> ids) noexcept;
  void clear() noexcept;

  int32_t size() const noexcept { return size_; }
  int32_t max_tokens() const noexcept { return static_cast<int32_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const noexcept { return {tokens_.data(), size_t(size_)}; }

  // Occurrences of the end of `context` that a token follows: the longest first and of equally long ones the latest,
  // among the kMostVisits latest of the longest indexed n-gram that occurs at all. `context` may be the indexed text or
  // another one. Returns the filled part of `matches`.
  std::span<Match> find(std::span<const int32_t> context, std::span<Match> matches) const noexcept;

 private:
  // Occurrences are chained by their last 8, 3 and 1 tokens: a search goes through the chain of the most tokens that
  // has one, whose occurrences are few, and the longest match is always among them.
  static constexpr std::array<int32_t, 3> kChainTokens{8, 3, 1};

  struct Chain {
    std::vector<int32_t> heads;     // by hash: index of the last token of the latest occurrence
    std::vector<int32_t> previous;  // [max_tokens] the occurrence before it
  };

  static size_t num_heads(int32_t max_tokens) noexcept;
  size_t head_of(std::span<const int32_t> ngram) const noexcept;
  int32_t match_length(std::span<const int32_t> context, int32_t next) const noexcept;

  int32_t size_ = 0;
  std::vector<int32_t> tokens_;
  std::array<Chain, kChainTokens.size()> chains_;
};

}  // namespace pilotfish
