#include "sampling/logprob_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"
#include "sampling/row_math.h"

namespace pilotfish {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

}  // namespace

LogprobReport::LogprobReport(Sampler& sampler, int32_t num_ids, int32_t num_top, int32_t max_tokens)
    : sampler_(sampler),
      num_ids_(num_ids),
      num_top_(static_cast<size_t>(num_top)),
      max_tokens_(max_tokens),
      ids_(static_cast<size_t>(max_tokens) * num_top_),
      logprobs_(static_cast<size_t>(max_tokens) * num_top_) {}

size_t LogprobReport::next() {
  if (num_tokens_ == static_cast<size_t>(max_tokens_)) fail(PF_INTERNAL, "a step writes more than ", max_tokens_);
  return num_tokens_++;
}

float LogprobReport::add(std::span<const float> logits, int32_t id) {
  const size_t index = next();
  if (num_top_ == 0) return LogProbs(logits)[id];
  const std::span<int32_t> ids = std::span(ids_).subspan(index * num_top_, num_top_);
  sampler_.find_likeliest(logits.first(num_ids_), ids);
  float peak = logits[std::max(ids[0], 0)];
  if (const auto padding = logits.subspan(num_ids_); !padding.empty()) peak = std::max(peak, find_peak(padding).value);
  const LogProbs log_probs(logits, peak);
  float* out = logprobs_.data() + index * num_top_;
  for (const int32_t likely : ids) *out++ = likely < 0 ? kUnknown : log_probs[likely];
  return log_probs[id];
}

float LogprobReport::add(float logprob) {
  if (std::isnan(logprob)) fail_not_numbers();
  next();
  return logprob;
}

float LogprobReport::add_unknown() {
  const auto first = static_cast<std::ptrdiff_t>(next() * num_top_);
  std::fill_n(ids_.begin() + first, num_top_, -1);
  std::fill_n(logprobs_.begin() + first, num_top_, kUnknown);
  return kUnknown;
}

void LogprobReport::copy_to(int32_t* ids_out, float* logprobs_out) const {
  std::copy_n(ids_.begin(), num_tokens_ * num_top_, ids_out);
  std::copy_n(logprobs_.begin(), num_tokens_ * num_top_, logprobs_out);
}

}  // namespace pilotfish
