// The log-probabilities that a request reports with its tokens: from the target's unprocessed logits, of the token
// itself and of the likeliest ids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/sampler.h"

namespace pilotfish {

class LogprobReport {
 public:
  // Ids from num_ids on are padding and not reported. `sampler` must outlive it; max_tokens is the most a step writes.
  LogprobReport(Sampler& sampler, int32_t num_ids, int32_t num_top, size_t max_tokens);

  // A new step begins.
  void clear() noexcept { num_tokens_ = 0; }
  // The next token of the step, chosen at a row of logits: returns its log-probability.
  float add(std::span<const float> logits, int32_t id);
  // The same where its log-probability is known already and no likeliest ids are asked for.
  float add(float logprob) noexcept;
  // A token that no row leads to, with a log-probability that is NaN.
  float add_unknown();

  // The likeliest ids at each token of the step, likeliest first: [num_tokens, num_top]; -1 and NaN where there is
  // none.
  void copy_to(int32_t* ids_out, float* logprobs_out) const;

 private:
  Sampler& sampler_;
  const int32_t num_ids_;
  const size_t num_top_;
  size_t num_tokens_ = 0;
  std::vector<int32_t> ids_;     // [max_tokens, num_top]
  std::vector<float> logprobs_;  // [max_tokens, num_top]
};

}  // namespace pilotfish
