// Which tree a drafter is to build. Shapes are plain lists, so that whatever scores the tokens of a level (a draft
// model, a head for each level) can fill them.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <span>

#include "base/token_tree.h"

namespace pilotfish {

class TreeShape {
 public:
  // `depth` levels of one token each.
  static TreeShape chain(int32_t depth) noexcept;
  // Each token of level i has widths[i + 1] children, the root widths[0]: 3-2-2-1 has 3 + 6 + 12 + 12 tokens. Every
  // width is at least 1, and there are at most TokenTree::kMaxTokens levels.
  static TreeShape fixed(std::span<const int32_t> widths) noexcept;
  // Token i hangs below parents[i], an earlier one or TokenTree::kRoot; parents ascend, so that the shape is read level
  // by level. At most TokenTree::kMaxTokens of them.
  static TreeShape sparse(std::span<const int32_t> parents) noexcept;
  // The likeliest `num_tokens` paths of at most `depth` tokens.
  static TreeShape dynamic(int32_t num_tokens, int32_t depth) noexcept;

  bool is_dynamic() const noexcept { return is_dynamic_; }
  bool is_sparse() const noexcept { return is_sparse_; }
  // Of a sparse shape: how many children its token has, and the first of them; kRoot for the root's.
  int32_t num_children(int32_t token) const noexcept { return num_children_[token + 1]; }
  int32_t first_child(int32_t token) const noexcept { return first_children_[token + 1]; }
  // More than TokenTree::kMaxTokens: the shape is too large for a mask.
  int32_t num_tokens() const noexcept { return num_tokens_; }
  int32_t depth() const noexcept { return depth_; }
  // Children of a token of this depth, the root's is 0; at most this many for a dynamic shape. Not of a sparse shape.
  int32_t width(int32_t depth) const noexcept { return is_dynamic_ ? kMostChildren : widths_[depth]; }
  // Of any token.
  int32_t most_children() const noexcept;

 private:
  // More siblings are never among the likeliest 63 paths in practice, and each costs a search through the logits.
  static constexpr int32_t kMostChildren = 8;

  bool is_dynamic_ = false;
  bool is_sparse_ = false;
  int32_t num_tokens_ = 0;
  int32_t depth_ = 0;
  std::array<int32_t, TokenTree::kMaxTokens> widths_;
  std::array<int32_t, TokenTree::kMaxTokens + 1> num_children_{}, first_children_{};  // by token + 1
};

inline TreeShape TreeShape::chain(int32_t depth) noexcept {
  TreeShape shape;
  shape.widths_.fill(1);
  shape.num_tokens_ = shape.depth_ = std::min(depth, TokenTree::kMaxTokens);
  return shape;
}

inline TreeShape TreeShape::fixed(std::span<const int32_t> widths) noexcept {
  assert(widths.size() <= size_t(TokenTree::kMaxTokens));
  TreeShape shape;
  int64_t num_in_level = 1;
  int64_t num_tokens = 0;
  for (const int32_t width : widths) {
    shape.widths_[shape.depth_++] = width;
    num_in_level = std::min<int64_t>(num_in_level * width, TokenTree::kMaxTokens + 1);
    num_tokens = std::min<int64_t>(num_tokens + num_in_level, TokenTree::kMaxTokens + 1);
  }
  shape.num_tokens_ = static_cast<int32_t>(num_tokens);
  return shape;
}

inline TreeShape TreeShape::sparse(std::span<const int32_t> parents) noexcept {
  assert(parents.size() <= size_t(TokenTree::kMaxTokens));
  TreeShape shape;
  shape.is_sparse_ = true;
  shape.num_tokens_ = static_cast<int32_t>(parents.size());
  std::array<int32_t, TokenTree::kMaxTokens> depths;
  for (int32_t i = 0; i < shape.num_tokens_; ++i) {
    const int32_t parent = parents[i];
    if (shape.num_children_[parent + 1]++ == 0) shape.first_children_[parent + 1] = i;
    depths[i] = parent == TokenTree::kRoot ? 1 : depths[parent] + 1;
    shape.depth_ = depths[i];
  }
  return shape;
}

inline int32_t TreeShape::most_children() const noexcept {
  if (is_dynamic_) return kMostChildren;
  const auto most = [](const auto& counts, int32_t size) {
    return size == 0 ? 0 : *std::max_element(counts.begin(), counts.begin() + size);
  };
  return is_sparse_ ? most(num_children_, num_tokens_ + 1) : most(widths_, depth_);
}

inline TreeShape TreeShape::dynamic(int32_t num_tokens, int32_t depth) noexcept {
  TreeShape shape;
  shape.is_dynamic_ = true;
  shape.num_tokens_ = num_tokens;
  shape.depth_ = std::min({depth, num_tokens, TokenTree::kMaxTokens});
  return shape;
}

}  // namespace pilotfish
