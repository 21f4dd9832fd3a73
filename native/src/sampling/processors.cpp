#include "sampling/processors.h"

#include <algorithm>
#include <limits>

#include "base/token_tree.h"
#include "sampling/row_math.h"

namespace pilotfish {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

void ban(std::span<float> scores, int32_t id) {
  if (static_cast<size_t>(id) < scores.size()) scores[id] = kBanned;
}

bool penalizes(const ProcessorOptions& options) {
  return options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0;
}

}  // namespace

bool ProcessorOptions::change_scores() const noexcept {
  return penalizes(*this) || no_repeat_ngram_size > 0 || min_new_tokens > 0 || !logit_bias.empty() || mask;
}

std::string ProcessorOptions::bans() const {
  std::string names;
  const auto add = [&](bool is_on, const char* name) {
    if (is_on) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(!logit_bias.empty(), "logit_bias");
  add(no_repeat_ngram_size > 0, "no_repeat_ngram_size");
  add(min_new_tokens > 0, "min_new_tokens");
  add(mask != nullptr, "mask");
  return names;
}

Processors::Processors(const ProcessorOptions& options, const SequenceLimits& limits)
    : options_(options), num_prompt_tokens_(limits.num_prompt_tokens) {
  if (penalizes(options) || options.no_repeat_ngram_size > 0) {
    history_.emplace(limits.num_prompt_tokens, limits.max_tokens + TokenTree::kMaxTokens, options.penalty_window);
  }
  if (options.mask) masks_.emplace(options.mask, options.mask_user, limits.num_ids);
}

bool Processors::apply(std::span<const float> logits, const Prefix& prefix, std::span<float> scores) {
  copy(logits, prefix, scores);
  for (const pf_logit_bias& bias : options_.logit_bias) {
    if (static_cast<size_t>(bias.id) < scores.size()) scores[bias.id] += bias.bias;
  }
  if (history_) {
    follow(prefix);
    if (penalizes(options_)) penalize(scores);
    if (options_.no_repeat_ngram_size > 0) ban_ngrams(scores);
  }
  const auto num_new_tokens = static_cast<int32_t>(prefix.tokens.size() + prefix.path.size()) - num_prompt_tokens_;
  if (num_new_tokens < options_.min_new_tokens) {
    for (const int32_t id : options_.end_ids) ban(scores, id);
  }
  // One is nearly always left among the first.
  const auto is_left = [](float score) { return score > kBanned; };
  return std::ranges::any_of(scores.first(std::min<size_t>(64, scores.size())), is_left) ||
         is_left(find_peak(scores).value);
}

void Processors::copy(std::span<const float> logits, const Prefix& prefix, std::span<float> scores) {
  if (masks_) {
    copy_masked(logits, masks_->after(static_cast<int32_t>(prefix.tokens.size()), prefix.path).data(), scores.data());
  } else {
    std::ranges::copy(logits, scores.begin());
  }
}

// Leaves the tokens of `prefix` in the history: takes back what of the last path is not in this one.
void Processors::follow(const Prefix& prefix) {
  TokenHistory& history = *history_;
  const auto num_tokens = static_cast<int32_t>(prefix.tokens.size());
  int32_t num_kept = num_tokens;  // of the history
  if (num_base_tokens_ == num_tokens) {
    const int32_t most = std::min(history.size(), num_tokens + static_cast<int32_t>(prefix.path.size()));
    while (num_kept < most && history[num_kept] == prefix.path[num_kept - num_tokens]) ++num_kept;
  } else {
    num_kept = std::min(num_base_tokens_, num_tokens);
  }
  while (history.size() > num_kept) history.pop();
  while (history.size() < num_tokens) history.push(prefix.tokens[history.size()]);
  num_base_tokens_ = num_tokens;
  for (const int32_t id : prefix.path.subspan(history.size() - num_tokens)) history.push(id);
}

void Processors::penalize(std::span<float> scores) const {
  const float repetition = options_.repetition_penalty;
  for (const TokenHistory::Entry& entry : history_->entries()) {
    if (entry.num_in_window == 0 || static_cast<size_t>(entry.id) >= scores.size()) continue;
    float& score = scores[entry.id];
    if (score == kBanned) continue;
    // A bias near a float's largest numbers, or a penalty near zero, leads out of them.
    score = std::clamp(score < 0 ? score * repetition : score / repetition, -kLargest, kLargest);
    if (entry.num_generated == 0) continue;
    score -= options_.frequency_penalty * static_cast<float>(entry.num_generated);
    score -= options_.presence_penalty;
  }
}

// Bans what followed the earlier occurrences of the last n - 1 tokens.
void Processors::ban_ngrams(std::span<float> scores) const {
  const TokenHistory& history = *history_;
  const int32_t num_before = options_.no_repeat_ngram_size - 1;
  if (num_before == 0) {
    for (const TokenHistory::Entry& entry : history.entries()) ban(scores, entry.id);
    return;
  }
  const int32_t last = history.size() - 1;
  if (last < num_before) return;
  for (int32_t position = history.previous(last); position >= num_before - 1; position = history.previous(position)) {
    int32_t num_equal = 1;
    while (num_equal < num_before && history[position - num_equal] == history[last - num_equal]) ++num_equal;
    if (num_equal == num_before) ban(scores, history[position + 1]);
  }
}

}  // namespace pilotfish
