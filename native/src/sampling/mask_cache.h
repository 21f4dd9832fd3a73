// Asks the request's mask callback which ids may follow, once for every path of a round.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "pilotfish.h"

namespace pilotfish {

class MaskCache {
 public:
  MaskCache(pf_mask_callback callback, void* user, int32_t num_ids);

  // One bit an id, lowest first: set where the id may follow the sequence and `path`. A sequence of another length
  // starts a new round. Throws PF_CALLBACK_FAILED when the callback does not return 0.
  std::span<const uint32_t> after(int32_t num_tokens, std::span<const int32_t> path);

 private:
  static constexpr int32_t kMostPaths = TokenTree::kMaxTokens + 1;

  struct Path {
    int32_t size;
    std::array<int32_t, TokenTree::kMaxTokens> ids;
  };

  std::span<uint32_t> words(int32_t index) noexcept { return {words_.data() + index * num_words_, num_words_}; }

  const pf_mask_callback callback_;
  void* const user_;
  const size_t num_words_;
  int32_t num_tokens_ = -1;  // of the round
  int32_t num_paths_ = 0;    // of the round so far; each fills the slot num_paths % kMostPaths
  std::vector<Path> paths_;
  std::vector<uint32_t> words_;  // [kMostPaths, num_words]
};

}  // namespace pilotfish
