#include "sampling/sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "base/status.h"
#include "sampling/row_math.h"

namespace pilotfish {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

double sum_of(std::span<const float> values) {
  constexpr size_t kChains = 8;  // independent sums, for speed; their order is fixed
  float sums[kChains] = {};
  size_t i = 0;
  for (; i + kChains <= values.size(); i += kChains) {
    for (size_t j = 0; j < kChains; ++j) sums[j] += values[i + j];
  }
  double sum = 0;
  for (const float part : sums) sum += part;
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

}  // namespace

void Distribution::reserve(size_t num_ids) {
  ids.reserve(num_ids);
  probs.reserve(num_ids);
}

size_t Distribution::find(int32_t id) const {
  if (is_dense) return std::min<size_t>(id, probs.size());
  const auto found = std::lower_bound(ids.begin(), ids.end(), id);
  return found != ids.end() && *found == id ? found - ids.begin() : probs.size();
}

float Distribution::prob_of(int32_t id) const {
  const size_t index = find(id);
  return index < probs.size() ? probs[index] : 0.0f;
}

int32_t Distribution::sample(double u) const {
  constexpr size_t kBlock = 256;
  const std::span<const float> all(probs);
  const auto block = [&](size_t begin) { return all.subspan(begin, std::min(kBlock, all.size() - begin)); };
  double total = 0;
  for (size_t begin = 0; begin < all.size(); begin += kBlock) total += sum_of(block(begin));
  double left = u * total;
  size_t last_possible = 0;  // rounding may carry u past the last token: then that one is drawn
  for (size_t begin = 0; begin < all.size(); begin += kBlock) {
    const double mass = sum_of(block(begin));
    if (mass == 0) continue;
    last_possible = begin;
    if (left < mass) break;
    left -= mass;
  }
  size_t chosen = last_possible;
  for (size_t i = last_possible; i < last_possible + block(last_possible).size(); ++i) {
    if (all[i] == 0) continue;
    chosen = i;
    if (left < all[i]) break;
    left -= all[i];
  }
  return is_dense ? static_cast<int32_t>(chosen) : ids[chosen];
}

double Distribution::mass() const { return sum_of(probs); }

float Distribution::subtract(const Distribution& other, float factor) {
  assert(is_dense == other.is_dense);
  if (is_dense) {
    const std::span<float> all(probs);
    const size_t num_shared = std::min(all.size(), other.probs.size());  // a draft may score fewer ids
    return subtract_positive(all.first(num_shared), other.probs.data(), factor) +
           static_cast<float>(sum_of(all.subspan(num_shared)));
  }
  float mass = 0;
  size_t j = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    while (j < other.ids.size() && other.ids[j] < ids[i]) ++j;
    if (j < other.ids.size() && other.ids[j] == ids[i]) probs[i] = std::max(probs[i] - factor * other.probs[j], 0.0f);
    mass += probs[i];
  }
  return mass;
}

void Distribution::set_prob(int32_t id, float prob) {
  if (const size_t index = find(id); index < probs.size()) probs[index] = prob;
}

double Distribution::entropy() const {
  double sum = 0;
  for (const float prob : probs) sum += prob > 0 ? double{prob} * std::log(double{prob}) : 0;
  return -sum;
}

Sampler::Sampler(size_t max_ids) : scores_(max_ids), candidates_(max_ids) {
  const size_t num_blocks = (max_ids + kPeakBlock - 1) / kPeakBlock;
  block_peaks_.reserve(num_blocks);
  sorted_peaks_.reserve(num_blocks);
  for (std::vector<int32_t>* numbers : {&blocks_, &first_candidates_}) numbers->reserve(num_blocks);
  for (std::vector<float>* weights : {&block_weights_, &block_bounds_}) weights->reserve(num_blocks);
  ranked_.reserve(kMostRanked + 1);
}

bool Sampler::filters(const SamplingOptions& options) noexcept {
  return options.top_k > 0 || options.top_p < 1 || options.min_p > 0 || options.typical_p < 1;
}

bool Sampler::process(std::span<const float> logits, const SamplingOptions& options, Distribution& out) {
  assert(options.temperature > 0);
  // By the options alone: a draft that scores fewer ids must give the same kind.
  out.is_dense = !filters(options);
  out.ids.clear();
  out.probs.clear();
  if (logits.empty()) return false;
  if (out.is_dense) {
    const float peak = find_peak(logits).value;
    if (peak == kNothing) return false;
    out.probs.resize(logits.size());
    const float sum = exp_into(logits, peak, 1.0f / options.temperature, out.probs.data());
    if (!std::isfinite(sum)) return false;
    multiply(out.probs, 1.0f / sum);
    return true;
  }
  if (!find_block_peaks(logits)) return false;
  const float peak = *std::max_element(block_peaks_.begin(), block_peaks_.end());
  if (!std::isfinite(peak) || !process_sparse(logits, peak, options)) return false;
  const auto mass = static_cast<float>(candidates_.mass());
  if (!std::isfinite(mass)) return false;
  out.ids.assign(candidates_.ids().begin(), candidates_.ids().end());
  out.probs.assign(candidates_.weights().begin(), candidates_.weights().end());
  multiply(out.probs, 1 / mass);
  return true;
}

// Leaves the candidates of all filters. False where the logits are seen not to be numbers.
bool Sampler::process_sparse(std::span<const float> logits, float peak, const SamplingOptions& options) {
  const FirstFilter first = first_filter(logits, peak, options);
  if (!std::isfinite(first.mass)) return false;
  candidates_.collect(logits, block_peaks_, first.least_logit);
  const bool has_top_k = options.top_k > 0;
  if (has_top_k) candidates_.keep_top_k(options.top_k);
  candidates_.weigh(peak, 1.0f / options.temperature);
  if (options.top_p < 1) candidates_.keep_top_p(options.top_p * (has_top_k ? candidates_.mass() : first.mass));
  if (options.min_p > 0) candidates_.keep_min_p(options.min_p);
  if (options.typical_p >= 1) return true;
  if (first.mean_height) {
    candidates_.keep_nearest(*first.mean_height, options.typical_p * first.mass);
  } else {
    const double mass = candidates_.mass();
    candidates_.keep_nearest(candidates_.mean_height(), options.typical_p * mass);
  }
  return true;
}

Sampler::FirstFilter Sampler::first_filter(std::span<const float> logits, float peak, const SamplingOptions& options) {
  const float scale = 1.0f / options.temperature;
  // Of tokens with a height, the logit; a little lower, for rounding.
  const auto logit_at = [&](float height) { return peak + options.temperature * (height - 1e-3f); };
  // Tokens below this height have, even all together, no more than `share` of the mass.
  const auto height_of_rest = [&](float share, float mass) {
    return std::log(share * mass / static_cast<float>(logits.size()));
  };
  if (options.top_k > 0) return {.least_logit = kth_block_peak(options.top_k)};
  if (options.top_p < 1) {
    const double mass = exp_sum(logits, peak, scale);
    return {.least_logit = logit_at(height_of_rest(1 - options.top_p, static_cast<float>(mass))), .mass = mass};
  }
  if (options.min_p > 0) return {.least_logit = logit_at(std::log(options.min_p))};
  const ExpMoments moments = exp_moments(logits, peak, scale);
  const float mean_height = moments.weighted / moments.sum;
  // Those above the first bound suffice for the mass; as far as the farthest of them, others may be among the nearest.
  const float least = std::min(height_of_rest(1 - options.typical_p, moments.sum), 2 * mean_height);
  return {.least_logit = logit_at(least), .mass = moments.sum, .mean_height = mean_height};
}

void Sampler::find_likeliest(std::span<const float> logits, std::span<int32_t> ids_out) {
  find_block_peaks(logits);
  candidates_.collect(logits, block_peaks_, kth_block_peak(ids_out.size()));
  candidates_.find_largest(ids_out);
}

bool Sampler::find_block_peaks(std::span<const float> logits) {
  block_peaks_.resize((logits.size() + kPeakBlock - 1) / kPeakBlock);
  return block_peaks(logits, block_peaks_.data());
}

float Sampler::kth_block_peak(size_t k) {
  if (k > block_peaks_.size()) return kNothing;
  sorted_peaks_ = block_peaks_;
  const auto kth = sorted_peaks_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(sorted_peaks_.begin(), kth, sorted_peaks_.end(), std::greater<>());
  return *kth;
}

void fail_not_numbers() {
  fail(
      PF_BUNDLE_CORRUPT,
      "the target's logits are not numbers (NaN or infinite): its weights are damaged, or too large for the formats of "
      "weights and caches; export the bundle again");
}

LogProbs::LogProbs(std::span<const float> logits) : LogProbs(logits, find_peak(logits).value) {}

LogProbs::LogProbs(std::span<const float> logits, float peak) : logits_(logits), peak_(peak) {
  const float sum = exp_sum(logits, peak_, 1);
  if (!std::isfinite(sum)) fail_not_numbers();
  log_sum_ = std::log(sum);
}

}  // namespace pilotfish
