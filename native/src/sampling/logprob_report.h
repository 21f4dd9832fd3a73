// The log-probabilities that a request reports with its tokens: from the target's unprocessed logits, of the token
// itself and of the likeliest ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/sampler.h"

namespace pilotfish {

class LogprobReport {
 public:
  // Ids from num_ids on are padding and not reported. `sampler` must outlive it; max_tokens is the most a step writes.
  LogprobReport(Sampler& sampler, int32_t num_ids, int32_t num_top, int32_t max_tokens);

  int32_t max_tokens() const noexcept { return max_tokens_; }

  // A new step begins.
  void clear() noexcept { num_tokens_ = 0; }
  // Only the first num_tokens of the step were kept.
  void keep(size_t num_tokens) noexcept { num_tokens_ = std::min(num_tokens_, num_tokens); }
  // The next token of the step, chosen at a row of logits: returns its log-probability.
  float add(std::span<const float> logits, int32_t id);
  // The same where its log-probability is known already and no likeliest ids are asked for.
  float add(float logprob);
  // A token that no row leads to, with a log-probability that is NaN.
  float add_unknown();

  // The likeliest ids at each token of the step, likeliest first: [num_tokens, num_top]; -1 and NaN where there is
  // none.
  void copy_to(int32_t* ids_out, float* logprobs_out) const;

 private:
  // The index of the next token. A step that writes more than it was to is a bug, and not one of memory.
  size_t next();

  Sampler& sampler_;
  const int32_t num_ids_;
  const size_t num_top_;
  const int32_t max_tokens_;
  size_t num_tokens_ = 0;
  std::vector<int32_t> ids_;     // [max_tokens, num_top]
  std::vector<float> logprobs_;  // [max_tokens, num_top]
};

}  // namespace pilotfish
