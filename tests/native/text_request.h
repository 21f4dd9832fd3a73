// A request for a greedy draft of a text, for drafters that need neither a
// cache nor a head's state.
#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "draft/drafter.h"

class TextRequest {
 public:
  TextRequest(std::vector<int32_t> tokens, int32_t num_ids)
      : tokens_(std::move(tokens)), sampler_(num_ids), chooser_({}, sampler_) {}

  bool propose(pilotfish::Drafter& drafter, pilotfish::Draft& out) {
    return drafter.propose({.tokens = tokens_,
                            .max_levels = pilotfish::TokenTree::kMaxTokens,
                            .is_chain = false,
                            .rates = nullptr,
                            .pace = nullptr,
                            .first_token = 0,
                            .block_table = {},
                            .head_state = nullptr,
                            .chooser = chooser_,
                            .random = nullptr,
                            .cancelled = cancelled_},
                           out);
  }

 private:
  const std::vector<int32_t> tokens_;
  pilotfish::Sampler sampler_;
  pilotfish::TokenChooser chooser_;
  std::atomic<bool> cancelled_{false};
};
