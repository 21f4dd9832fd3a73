// A row of logits to what may follow: first the processors of the request, which look at the tokens before the row,
// then its warpers. Draft and target go through the same one, each row with the prefix that plain decoding would have
// there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sampling/processors.h"
#include "sampling/sampler.h"

namespace pilotfish {

class TokenChooser {
 public:
  // `sampler` must outlive it.
  TokenChooser(const SamplingOptions& sampling, Sampler& sampler);
  // Allocates what the processors need for the longest sequence.
  TokenChooser(const SamplingOptions& sampling, Sampler& sampler, const ProcessorOptions& processors,
               const SequenceLimits& limits);

  bool is_greedy() const noexcept { return sampling_.temperature == 0; }
  float temperature() const noexcept { return sampling_.temperature; }
  // Whether scores() may differ from the logits.
  bool changes_scores() const noexcept { return processors_.has_value(); }
  // Whether the text ends with this id: nothing is drafted or accepted after it.
  bool ends_text(int32_t id) const noexcept;

  // The row after the processors; valid until the next call. May be shorter than the vocabulary. Empty when they leave
  // no token: a drafter then stops there, the target fails with fail_no_token().
  [[nodiscard]] std::span<const float> scores(std::span<const float> logits, const Prefix& prefix);
  // The id that the text goes on with: of greedy decoding the one with the largest score, of equal ones the lowest;
  // else the best one under the shared noise (Sampler::rank). kNoToken where none is left or the logits
  // are not numbers.
  static constexpr int32_t kNoToken = -1;
  [[nodiscard]] int32_t choose(std::span<const float> logits, const Prefix& prefix);
  // The best `count` of what choose() takes the best of, not for greedy decoding; valid until the next call.
  [[nodiscard]] std::span<const Ranked> rank(std::span<const float> logits, const Prefix& prefix, size_t count);
  // The scores after the warpers. Not for greedy decoding, which takes the likeliest score. False, and no distribution,
  // when no token is left or the logits are not numbers.
  [[nodiscard]] bool distribution(std::span<const float> logits, const Prefix& prefix, Distribution& out) {
    return sampler_.process(scores(logits, prefix), sampling_, out);
  }
  // Throws PF_NO_TOKEN_LEFT with the options that ban tokens, or PF_BUNDLE_CORRUPT if the target gave no numbers.
  [[noreturn]] void fail_no_token(std::span<const float> logits, const Prefix& prefix) const;

 private:
  const SamplingOptions sampling_;
  const SharedNoise noise_;
  const ProcessorOptions options_;
  const int32_t num_prompt_tokens_;
  Sampler& sampler_;
  std::optional<Processors> processors_;  // none: the options change no score
};

}  // namespace pilotfish
