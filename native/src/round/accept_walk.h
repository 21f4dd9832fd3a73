// Going down a token tree by decisions about one token at a time.
#pragma once

#include <array>
#include <span>

#include "round/accept.h"

namespace pilotfish {

// A path on its way down the tree.
class Walk {
 public:
  explicit Walk(const Verification& verification) : verification_(verification) {}

  int32_t at() const noexcept { return accepted_.last(); }
  // Index in the sequence of the token that is being decided.
  int32_t position() const noexcept {
    return static_cast<int32_t>(verification_.tokens.size()) + accepted_.num_accepted;
  }
  std::span<const float> logits() const { return verification_.target.row(at() + 1).first(verification_.num_ids); }
  Prefix prefix() const noexcept { return {verification_.tokens, {ids_.data(), size_t(accepted_.num_accepted)}}; }

  void keep(int32_t index) noexcept {
    ids_[accepted_.num_accepted] = verification_.tree[index].id;
    accepted_.path[accepted_.num_accepted++] = index;
  }
  Accepted end(int32_t next_id) noexcept {
    accepted_.next_id = next_id;
    return accepted_;
  }
  Accepted end_without_token() {
    if (accepted_.num_accepted == 0) verification_.chooser.fail_no_token(logits(), prefix());
    return end(Accepted::kNoToken);
  }

 private:
  const Verification& verification_;
  Accepted accepted_;
  std::array<int32_t, TokenTree::kMaxTokens> ids_;
};

}  // namespace pilotfish
