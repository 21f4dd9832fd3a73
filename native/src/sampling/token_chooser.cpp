#include "sampling/token_chooser.h"

#include <algorithm>

#include "base/status.h"
#include "sampling/row_math.h"

namespace pilotfish {

TokenChooser::TokenChooser(const SamplingOptions& sampling, Sampler& sampler)
    : TokenChooser(sampling, sampler, {}, {}) {}

TokenChooser::TokenChooser(const SamplingOptions& sampling, Sampler& sampler, const ProcessorOptions& processors,
                           const SequenceLimits& limits)
    : sampling_(sampling),
      noise_(sampling.seed),
      options_(processors),
      num_prompt_tokens_(limits.num_prompt_tokens),
      sampler_(sampler) {
  if (options_.change_scores()) processors_.emplace(options_, limits);
}

bool TokenChooser::ends_text(int32_t id) const noexcept {
  return std::ranges::find(options_.end_ids, id) != options_.end_ids.end();
}

std::span<const float> TokenChooser::scores(std::span<const float> logits, const Prefix& prefix) {
  if (!processors_) return logits;
  const std::span<float> scores = sampler_.scores().first(logits.size());
  if (!processors_->apply(logits, prefix, scores)) return {};
  return scores;
}

int32_t TokenChooser::choose(std::span<const float> logits, const Prefix& prefix) {
  if (is_greedy()) {
    const std::span<const float> found = scores(logits, prefix);
    return found.empty() ? kNoToken : find_peak(found).index;
  }
  const std::span<const Ranked> best = rank(logits, prefix, 1);
  return best.empty() ? kNoToken : best[0].id;
}

std::span<const Ranked> TokenChooser::rank(std::span<const float> logits, const Prefix& prefix, size_t count) {
  const auto position = static_cast<int32_t>(prefix.tokens.size() + prefix.path.size());
  return sampler_.rank(scores(logits, prefix), sampling_, noise_, position, count);
}

void TokenChooser::fail_no_token(std::span<const float> logits, const Prefix& prefix) const {
  if (!are_numbers(logits)) fail_not_numbers();
  const auto position = static_cast<int32_t>(prefix.tokens.size() + prefix.path.size());
  fail(PF_NO_TOKEN_LEFT, "no token is left to follow ", position - num_prompt_tokens_,
       " new tokens: together these ban every id: ", options_.bans());
}

}  // namespace pilotfish
