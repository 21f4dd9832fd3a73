// Drafted tokens, each after its parent. A chain is a tree of width one, so that one verification serves both.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <span>

namespace pilotfish {

class TokenTree {
 public:
  static constexpr int32_t kMaxTokens = 63;  // row 0 of a verification is the root, and a row's mask has 64 bits
  static constexpr int32_t kRoot = -1;       // the parent of tokens that follow the last token of the sequence

  void clear() noexcept { size_ = 0; }
  // Adds a token after `parent`, which is kRoot or an earlier index; returns its index.
  int32_t add(int32_t id, int32_t parent) noexcept;

  int32_t size() const noexcept { return size_; }
  std::span<const int32_t> ids() const noexcept { return {ids_.data(), size_t(size_)}; }
  bool is_chain() const noexcept { return is_chain_ || size_ == 0; }
  // Tokens between the root and this one, itself included.
  int32_t depth(int32_t index) const noexcept { return depths_[index]; }
  // Rows of the verification pass that the token sees: bit 0 is the root, bit i + 1 the token i.
  uint64_t mask(int32_t index) const noexcept { return masks_[index]; }

 private:
  int32_t size_ = 0;
  bool is_chain_ = true;
  std::array<int32_t, kMaxTokens> ids_;
  std::array<int32_t, kMaxTokens> depths_;
  std::array<uint64_t, kMaxTokens> masks_;
};

inline int32_t TokenTree::add(int32_t id, int32_t parent) noexcept {
  assert(size_ < kMaxTokens && parent >= kRoot && parent < size_);
  is_chain_ = (size_ == 0 || is_chain_) && parent == size_ - 1;
  ids_[size_] = id;
  depths_[size_] = parent == kRoot ? 1 : depths_[parent] + 1;
  masks_[size_] = (parent == kRoot ? 1 : masks_[parent]) | uint64_t{2} << size_;
  return size_++;
}

}  // namespace pilotfish
