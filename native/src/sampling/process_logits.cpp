#include "sampling/process_logits.h"

#include <algorithm>
#include <limits>

#include "base/status.h"
#include "sampling/row_math.h"
#include "sampling/sampling_options.h"
#include "sampling/token_chooser.h"

namespace pilotfish {
namespace {

void check(std::span<const float> logits, std::span<const int32_t> ids, size_t num_prompt_tokens) {
  constexpr size_t kMost = size_t{1} << 30;
  if (logits.empty() || logits.size() > kMost || ids.size() > kMost) {
    fail(PF_INVALID_ARGUMENT, "there are ", logits.size(), " logits and ", ids.size(), " ids, allowed are 1 to ", kMost,
         " and 0 to ", kMost);
  }
  if (!are_numbers(logits)) fail(PF_INVALID_ARGUMENT, "the logits are not numbers: NaN, infinite or all -inf");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= logits.size()) {
      fail(PF_INVALID_ARGUMENT, "ids[", i, "] is ", ids[i], ", outside the vocabulary of ", logits.size());
    }
  }
  if (num_prompt_tokens > ids.size()) {
    fail(PF_INVALID_ARGUMENT, "num_prompt_tokens is ", num_prompt_tokens, " of ", ids.size(), " ids");
  }
}

}  // namespace

void process_logits(const pf_generate_options& options, std::span<const float> logits, std::span<const int32_t> ids,
                    size_t num_prompt_tokens, std::span<float> scores_out, std::span<float> probs_out) {
  check(logits, ids, num_prompt_tokens);
  const auto num_ids = static_cast<int32_t>(logits.size());
  check_option_ids(options, num_ids);
  Sampler sampler(logits.size());
  TokenChooser chooser(sampling_options(options), sampler, processor_options(options, {}),
                       {static_cast<int32_t>(num_prompt_tokens), static_cast<int32_t>(ids.size()) + 1, num_ids});
  const Prefix prefix{.tokens = ids, .path = {}};
  const std::span<const float> scores = chooser.scores(logits, prefix);
  if (scores.empty()) chooser.fail_no_token(logits, prefix);
  std::ranges::copy(scores, scores_out.begin());
  std::ranges::fill(probs_out, 0.0f);
  if (chooser.is_greedy()) {
    probs_out[find_peak(scores_out).index] = 1;
    return;
  }
  Distribution distribution;
  if (!chooser.distribution(logits, prefix, distribution)) chooser.fail_no_token(logits, prefix);
  for (size_t i = 0; i < distribution.probs.size(); ++i) {
    probs_out[distribution.is_dense ? static_cast<int32_t>(i) : distribution.ids[i]] = distribution.probs[i];
  }
}

}  // namespace pilotfish
