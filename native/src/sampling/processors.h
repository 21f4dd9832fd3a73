// The part of choosing a token that looks at what stands before it: the request's logit bias, penalties, bans and mask.
// Their order is that of transformers' `_get_logits_processor` (5.24): sequence bias, repetition penalty, n-gram ban,
// end of text before min_new_tokens, and then what a caller adds there, which is where presence and frequency penalties
// (not in transformers) and a grammar's mask stand. Penalties that subtract and bans commute, so that ours are applied
// where it is cheapest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pilotfish.h"
#include "sampling/mask_cache.h"
#include "sampling/token_history.h"

namespace pilotfish {

// What stands before a row.
struct Prefix {
  std::span<const int32_t> tokens;  // the sequence so far
  std::span<const int32_t> path;    // drafted after it, down to the row
};

struct ProcessorOptions {
  // Of every token in the window, prompt included: a score above zero is divided by it, one below multiplied.
  float repetition_penalty = 1;
  // Subtracted once, and once an occurrence, from the score of tokens in the window that were generated.
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t penalty_window = 0;                  // the last tokens, prompt included; 0: all
  int32_t no_repeat_ngram_size = 0;            // no n-gram occurs twice, prompt included; 0: off
  int32_t min_new_tokens = 0;                  // before that, end_ids are banned
  std::vector<int32_t> end_ids = {};           // end the text
  std::vector<pf_logit_bias> logit_bias = {};  // added; at most one an id
  pf_mask_callback mask = nullptr;             // nullptr: off
  void* mask_user = nullptr;

  bool change_scores() const noexcept;
  // What can ban tokens among the options, for messages.
  std::string bans() const;
};

struct SequenceLimits {
  int32_t num_prompt_tokens;
  int32_t max_tokens;  // prompt and output
  int32_t num_ids;
};

class Processors {
 public:
  Processors(const ProcessorOptions& options, const SequenceLimits& limits);

  // Writes the processed row to `scores`, as long as `logits`, which may be shorter than the vocabulary. False when no
  // token is left. Prefixes may come in any order; those that differ little from the one before are fastest.
  bool apply(std::span<const float> logits, const Prefix& prefix, std::span<float> scores);

 private:
  void copy(std::span<const float> logits, const Prefix& prefix, std::span<float> scores);
  void follow(const Prefix& prefix);
  void penalize(std::span<float> scores) const;
  void ban_ngrams(std::span<float> scores) const;

  const ProcessorOptions options_;
  const int32_t num_prompt_tokens_;
  std::optional<TokenHistory> history_;
  int32_t num_base_tokens_ = 0;  // of history_ that are of the sequence; the rest are a path
  std::optional<MaskCache> masks_;
};

}  // namespace pilotfish
