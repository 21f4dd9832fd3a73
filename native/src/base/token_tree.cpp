#include "base/token_tree.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace pilotfish {

void TokenTree::clear(TreeLimits limits) noexcept {
  size_ = 0;
  limits_ = {std::clamp(limits.max_tokens, 0, kMaxTokens), std::clamp(limits.max_depth, 0, kMaxTokens)};
}

int32_t TokenTree::add(int32_t id, int32_t parent, float prob, Source source) noexcept {
  assert(parent >= kNone && parent < size_);
  if (parent == kNone || !(prob > 0)) return kNone;
  if (const int32_t same = find_child(parent, id); same != kNone) return same;
  const int32_t depth = parent == kRoot ? 1 : tokens_[parent].depth + 1;
  if (is_full() || depth > limits_.max_depth) return kNone;
  prob = std::min(prob, 1.0f);  // a sum may round a probability up past it
  tokens_[size_] = {.id = id,
                    .parent = parent,
                    .depth = depth,
                    .prob = prob,
                    .path_prob = parent == kRoot ? prob : prob * tokens_[parent].path_prob,
                    .source = source,
                    .draft_row = 0,
                    .draw = {},
                    .guess = {}};
  masks_[size_] = (parent == kRoot ? 1 : masks_[parent]) | uint64_t{2} << size_;
  return size_++;
}

void TokenTree::merge(const TokenTree& other) noexcept {
  std::array<int32_t, kMaxTokens> indices;
  for (int32_t i = 0; i < other.size_; ++i) {
    const TreeToken& token = other.tokens_[i];
    indices[i] = add(token.id, token.parent == kRoot ? kRoot : indices[token.parent], token.prob, token.source);
  }
}

void TokenTree::prune(int32_t max_tokens) noexcept {
  if (size_ <= max_tokens) return;
  std::array<int32_t, kMaxTokens> order;
  std::iota(order.begin(), order.begin() + size_, 0);
  const auto is_before = [&](int32_t a, int32_t b) {
    return tokens_[a].path_prob != tokens_[b].path_prob ? tokens_[a].path_prob > tokens_[b].path_prob : a < b;
  };
  std::sort(order.begin(), order.begin() + size_, is_before);
  std::array<bool, kMaxTokens> is_kept{};
  for (int32_t i = 0; i < std::min(max_tokens, size_); ++i) is_kept[order[i]] = true;
  std::array<int32_t, kMaxTokens> indices;
  const int32_t num_before = std::exchange(size_, 0);
  for (int32_t i = 0; i < num_before; ++i) {
    if (!is_kept[i]) continue;
    const TreeToken token = tokens_[i];
    indices[i] = add(token.id, token.parent == kRoot ? kRoot : indices[token.parent], token.prob, token.source);
    tokens_[indices[i]].draft_row = token.draft_row;
    tokens_[indices[i]].guess = token.guess;
  }
}

void TokenTree::raise_prob(int32_t index, float prob) noexcept {
  if (!(prob > tokens_[index].prob)) return;
  tokens_[index].prob = std::min(prob, 1.0f);
  for (int32_t i = index; i < size_; ++i) {
    TreeToken& token = tokens_[i];
    token.path_prob = token.parent == kRoot ? token.prob : token.prob * tokens_[token.parent].path_prob;
  }
}

int32_t TokenTree::next_child(int32_t parent, int32_t index) const noexcept {
  for (int32_t i = std::max(index, parent) + 1; i < size_; ++i) {
    if (tokens_[i].parent == parent) return i;
  }
  return kNone;
}

int32_t TokenTree::find_child(int32_t parent, int32_t id) const noexcept {
  if (parent == kNone) return kNone;
  for (int32_t i = parent + 1; i < size_; ++i) {
    if (tokens_[i].parent == parent && tokens_[i].id == id) return i;
  }
  return kNone;
}

std::span<const int32_t> TokenTree::path(int32_t index, std::span<int32_t, kMaxTokens> ids_out) const noexcept {
  const int32_t depth = index == kRoot ? 0 : tokens_[index].depth;
  for (int32_t i = depth - 1; i >= 0; --i) {
    ids_out[i] = tokens_[index].id;
    index = tokens_[index].parent;
  }
  return ids_out.first(depth);
}

}  // namespace pilotfish
