#include "sampling/sampling_options.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "base/status.h"

namespace pilotfish {
namespace {

constexpr float kMostTemperature = PF_MOST_TEMPERATURE;
constexpr float kMostPenalty = PF_MOST_PENALTY;
constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

template <typename Value>
void check(const char* name, Value value, bool is_valid, const std::string& limit) {
  if (!is_valid) fail(PF_INVALID_ARGUMENT, name, " is ", value, ", ", limit);
}

void check_count(const char* name, int32_t value, int32_t most) {
  if (value < 0 || value > most) {
    fail(PF_INVALID_ARGUMENT, name, " is ", value, ", allowed are 0 to ", most);
  }
}

void check_penalties(const pf_generate_options& options) {
  const float repetition = options.repetition_penalty;
  const std::string most = std::to_string(PF_MOST_PENALTY);
  check("repetition_penalty", repetition, repetition > 0 && repetition <= kMostPenalty, "not in (0, " + most + "]");
  for (const auto& [name, value] : {std::pair("presence_penalty", options.presence_penalty),
                                    std::pair("frequency_penalty", options.frequency_penalty)}) {
    check(name, value, value >= -kMostPenalty && value <= kMostPenalty, "not in [-" + most + ", " + most + "]");
  }
  check_count("penalty_window", options.penalty_window, kMost);
  check_count("no_repeat_ngram_size", options.no_repeat_ngram_size, kMost);
}

void check_logit_bias(const pf_generate_options& options) {
  if (options.num_logit_bias > 0 && !options.logit_bias) fail(PF_INVALID_ARGUMENT, "logit_bias is NULL");
  for (size_t i = 0; i < options.num_logit_bias; ++i) {
    const float bias = options.logit_bias[i].bias;
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      fail(PF_INVALID_ARGUMENT, "logit_bias of id ", options.logit_bias[i].id, " is ", bias,
           ", must be a number or -inf");
    }
  }
}

}  // namespace

void set_sampling_defaults(pf_generate_options& options) noexcept {
  options.top_p = 1;
  options.typical_p = 1;
  options.repetition_penalty = 1;
}

void check_sampling(const pf_generate_options& options) {
  check("temperature", options.temperature, options.temperature >= 0 && options.temperature <= kMostTemperature,
        "not in [0, " + std::to_string(PF_MOST_TEMPERATURE) + "]");
  check_count("top_k", options.top_k, kMost);
  check("top_p", options.top_p, options.top_p > 0 && options.top_p <= 1, "not in (0, 1]");
  check("min_p", options.min_p, options.min_p >= 0 && options.min_p < 1, "not in [0, 1)");
  check("typical_p", options.typical_p, options.typical_p > 0 && options.typical_p <= 1, "not in (0, 1]");
  check_count("min_new_tokens", options.min_new_tokens, kMost);
  if (options.min_new_tokens > options.max_new_tokens) {
    fail(PF_INVALID_ARGUMENT, "min_new_tokens is ", options.min_new_tokens, ", more than max_new_tokens, which is ",
         options.max_new_tokens);
  }
  check_penalties(options);
  check_logit_bias(options);
  check_count("num_top_logprobs", options.num_top_logprobs, PF_MOST_TOP_LOGPROBS);
  check_count("echo", options.echo, 1);
  if (options.num_stop_ids > 0 && !options.stop_ids) fail(PF_INVALID_ARGUMENT, "stop_ids is NULL");
}

void check_option_ids(const pf_generate_options& options, int32_t num_ids) {
  const auto check_id = [num_ids](const char* name, int32_t id) {
    if (id < 0 || id >= num_ids) {
      fail(PF_INVALID_ARGUMENT, name, " has id ", id, ", outside the vocabulary of ", num_ids);
    }
  };
  for (size_t i = 0; i < options.num_stop_ids; ++i) check_id("stop_ids", options.stop_ids[i]);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < options.num_logit_bias; ++i) {
    check_id("logit_bias", options.logit_bias[i].id);
    ids.push_back(options.logit_bias[i].id);
  }
  std::ranges::sort(ids);
  const auto twice = std::ranges::adjacent_find(ids);
  if (twice != ids.end()) fail(PF_INVALID_ARGUMENT, "logit_bias has id ", *twice, " twice");
}

bool needs_host(const pf_generate_options& options) noexcept {
  const bool changes_scores = options.num_logit_bias > 0 || options.repetition_penalty != 1 ||
                              options.presence_penalty != 0 || options.frequency_penalty != 0 ||
                              options.no_repeat_ngram_size > 0 || options.min_new_tokens > 0 || options.mask;
  return changes_scores || options.typical_p < 1 || options.typical_epsilon > 0 || options.num_top_logprobs > 0;
}

SamplingOptions sampling_options(const pf_generate_options& options) noexcept {
  return {.temperature = is_greedy(options) ? 0 : options.temperature,
          .top_k = options.top_k,
          .top_p = options.top_p,
          .min_p = options.min_p,
          .typical_p = options.typical_p,
          .seed = options.seed};
}

ProcessorOptions processor_options(const pf_generate_options& options, std::span<const int32_t> eos_ids) {
  ProcessorOptions processors{.repetition_penalty = options.repetition_penalty,
                              .presence_penalty = options.presence_penalty,
                              .frequency_penalty = options.frequency_penalty,
                              .penalty_window = options.penalty_window,
                              .no_repeat_ngram_size = options.no_repeat_ngram_size,
                              .min_new_tokens = options.min_new_tokens,
                              .end_ids = {options.stop_ids, options.stop_ids + options.num_stop_ids},
                              .logit_bias = {options.logit_bias, options.logit_bias + options.num_logit_bias},
                              .mask = options.mask,
                              .mask_user = options.mask_user};
  if (options.ignore_eos == 0) processors.end_ids.insert(processors.end_ids.end(), eos_ids.begin(), eos_ids.end());
  return processors;
}

}  // namespace pilotfish
