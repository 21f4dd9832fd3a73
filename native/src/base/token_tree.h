// Drafted tokens, each after its parent. A chain is a tree of width one, so that one code path serves both. Knows
// nothing of models and caches.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "pilotfish.h"

namespace pilotfish {

enum class Source : uint8_t { kDraft, kLookup, kHead };

// How a token was chosen, which acceptance by sampling must know. A certain token is one that its drafter names
// by its scores, with the noise of the position that the target's have too; a drawn one, for acceptance by rejection,
// came from one of the draft's distributions, without its elder siblings.
struct Draw {
  static constexpr int32_t kCertain = -1;

  int32_t distribution = kCertain;  // index into Draft::distributions
  float mass = 1;                   // of that distribution without the elder siblings
};

// What a drafter thought of a token that it named without drawing.
struct Guess {
  static constexpr int32_t kNone = -1;

  int32_t rank = kNone;  // among its siblings by confidence, from 0
  float confidence = 0;  // what the drafter thinks of the token after its parent, as a share
};

struct TreeToken {
  int32_t id;
  int32_t parent;   // TokenTree::kRoot or an earlier index
  int32_t depth;    // tokens between the root and this one, itself included
  float prob;       // the drafter's guess that the target agrees, given that it did with the parent
  float path_prob;  // product of prob from the root down
  Source source;
  // Slot of the draft's cache that holds the token, counted from the last token of the sequence; 0: it is not there.
  int32_t draft_row;
  Draw draw;
  Guess guess;
};

// How large a tree may be. A chain of k tokens is one of k levels.
struct TreeLimits {
  int32_t max_tokens;
  int32_t max_depth;
};

class TokenTree {
 public:
  static constexpr int32_t kMaxTokens =
      PF_MOST_DRAFT_TOKENS;             // row 0 of a verification is the root, and a row's mask has 64 bits
  static constexpr int32_t kRoot = -1;  // the parent of tokens that follow the last token of the sequence
  static constexpr int32_t kNone = -2;

  // Empties the tree. Limits are cut to 0..kMaxTokens.
  void clear(TreeLimits limits = {kMaxTokens, kMaxTokens}) noexcept;

  // Adds a token after `parent` and returns its index: that of the child of `parent` that has the id already, if there
  // is one, which stays as it is. kNone, and no change, when the tree is full, the token too deep or its probability
  // not above zero, or when `parent` is kNone: then what hangs below a refused token is refused as well.
  int32_t add(int32_t id, int32_t parent, float prob = 1, Source source = Source::kDraft) noexcept;
  // Records where a token came from: of use to whoever added it.
  void set_draw(int32_t index, Draw draw) noexcept { tokens_[index].draw = draw; }
  void set_guess(int32_t index, Guess guess) noexcept { tokens_[index].guess = guess; }
  void set_draft_row(int32_t index, int32_t row) noexcept { tokens_[index].draft_row = row; }
  // Where another drafter finds a token likelier than whoever added it.
  void raise_prob(int32_t index, float prob) noexcept;

  // Adds the paths of `other`, merging equal prefixes (SpecInfer: Miao et al., "SpecInfer: Accelerating large language
  // model serving with tree-based speculative inference and verification", 2024, definition 3.2), in its order until
  // the tree is full. What is new becomes certain and has no draft row: the distributions and the cache are other's.
  void merge(const TokenTree& other) noexcept;
  // Keeps the tokens whose paths are the likeliest, at most max_tokens of them, in their order; of equal ones the
  // earlier. They are a tree, as no path is likelier than its beginning. If any is thrown away, all become certain: to
  // throw draws away for what they are would bias an acceptance that took the rest for draws.
  void prune(int32_t max_tokens) noexcept;

  int32_t size() const noexcept { return size_; }
  TreeLimits limits() const noexcept { return limits_; }
  bool is_full() const noexcept { return size_ == limits_.max_tokens; }
  const TreeToken& operator[](int32_t index) const noexcept { return tokens_[index]; }
  std::span<const TreeToken> tokens() const noexcept { return {tokens_.data(), size_t(size_)}; }
  // Rows of the verification pass that the token sees: bit 0 is the root, bit i + 1 the token i.
  uint64_t mask(int32_t index) const noexcept { return masks_[index]; }
  // The child of `parent` after `index`, in the order they were added; kRoot asks for the first one. kNone: no further.
  int32_t next_child(int32_t parent, int32_t index) const noexcept;
  // kNone when `parent` has no child of that id, or is kNone itself.
  int32_t find_child(int32_t parent, int32_t id) const noexcept;
  // Writes the ids from the root down to the token, `depth` of them, and returns them.
  std::span<const int32_t> path(int32_t index, std::span<int32_t, kMaxTokens> ids_out) const noexcept;

 private:
  int32_t size_ = 0;
  TreeLimits limits_{kMaxTokens, kMaxTokens};
  std::array<TreeToken, kMaxTokens> tokens_;
  std::array<uint64_t, kMaxTokens> masks_;
};

}  // namespace pilotfish
