#include "sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>

#include "row_math.h"
#include "status.h"

namespace pilotfish {
namespace {

void check_finite(float sum) {
  if (!std::isfinite(sum)) fail(PF_INTERNAL, "the model's logits are not numbers");
}

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

double Distribution::remove(int32_t id) {
  restore(id, 0);
  return mass();
}

void Distribution::restore(int32_t id, float prob) {
  if (const size_t index = find(id); index < probs.size()) probs[index] = prob;
}

Sampler::Sampler(size_t max_ids) {
  const size_t num_blocks = (max_ids + kPeakBlock - 1) / kPeakBlock;
  block_peaks_.reserve(num_blocks);
  sorted_peaks_.reserve(num_blocks);
  candidates_.reserve(max_ids);
}

void Sampler::process(std::span<const float> logits, const SamplingOptions& options, Distribution& out) {
  assert(options.temperature > 0);
  const float scale = 1.0f / options.temperature;
  // By the options alone: a draft that scores fewer ids must give the same kind.
  out.is_dense = options.top_k <= 0 && options.top_p >= 1 && options.min_p <= 0;
  out.ids.clear();
  if (out.is_dense) {
    out.probs.resize(logits.size());
    const float sum = exp_into(logits, find_peak(logits).value, scale, out.probs.data());
    check_finite(sum);
    multiply(out.probs, 1.0f / sum);
    return;
  }
  block_peaks_.resize((logits.size() + kPeakBlock - 1) / kPeakBlock);
  block_peaks(logits, block_peaks_.data());
  const float peak = *std::max_element(block_peaks_.begin(), block_peaks_.end());
  check_finite(peak);
  process_sparse(logits, peak, options);
  std::sort(candidates_.begin(), candidates_.end(), [](auto& a, auto& b) { return a.id < b.id; });
  float sum = 0;
  for (const Candidate& candidate : candidates_) sum += candidate.weight;
  check_finite(sum);
  out.probs.clear();
  for (const Candidate& candidate : candidates_) {
    out.ids.push_back(candidate.id);
    out.probs.push_back(candidate.weight / sum);
  }
}

// Leaves the candidates of all filters, in no order. Each filter first bounds the logits, so that few tokens are looked
// at.
void Sampler::process_sparse(std::span<const float> logits, float peak, const SamplingOptions& options) {
  const float scale = 1.0f / options.temperature;
  const auto bound_of_weight = [&](float weight) { return peak + options.temperature * std::log(weight) - 1e-3f; };
  const auto top_k = static_cast<size_t>(options.top_k);
  float mass = 0;
  float least = -std::numeric_limits<float>::infinity();
  if (top_k > 0 && top_k < block_peaks_.size()) {
    // The k-th largest block peak: at least k tokens reach it, so that the k-th token does too.
    sorted_peaks_ = block_peaks_;
    const auto kth = sorted_peaks_.begin() + (top_k - 1);
    std::nth_element(sorted_peaks_.begin(), kth, sorted_peaks_.end(), std::greater<>());
    least = *kth;
  } else if (top_k == 0 && options.top_p < 1) {
    // Tokens below (1 - top_p) / n of the mass are, even all together, in the part that is cut.
    mass = exp_sum(logits, peak, scale);
    check_finite(mass);
    least = bound_of_weight((1 - options.top_p) * mass / static_cast<float>(logits.size()));
  } else if (top_k == 0) {
    least = bound_of_weight(options.min_p);
  }
  collect(logits, least);
  if (top_k > 0 && top_k < candidates_.size()) keep_top_k(top_k);
  for (Candidate& candidate : candidates_) candidate.weight = std::exp((candidate.logit - peak) * scale);
  if (options.top_p < 1) {
    if (top_k > 0) {
      for (const Candidate& candidate : candidates_) mass += candidate.weight;
    }
    keep_top_p(static_cast<double>(options.top_p) * mass);
  }
  std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.weight < options.min_p; });
}

void Sampler::collect(std::span<const float> logits, float least) {
  candidates_.clear();
  for (size_t block = 0; block < block_peaks_.size(); ++block) {
    if (!(block_peaks_[block] >= least)) continue;
    const size_t end = std::min(logits.size(), (block + 1) * kPeakBlock);
    for (size_t i = block * kPeakBlock; i < end; ++i) {
      if (logits[i] >= least) candidates_.push_back({static_cast<int32_t>(i), logits[i], 0});
    }
  }
}

void Sampler::keep_top_k(size_t top_k) {
  const auto kth = candidates_.begin() + (top_k - 1);
  std::nth_element(candidates_.begin(), kth, candidates_.end(), [](auto& a, auto& b) { return a.logit > b.logit; });
  const float least = kth->logit;
  std::erase_if(candidates_, [=](const Candidate& candidate) { return candidate.logit < least; });
}

// Keeps a token while those before it, from the likeliest down and the lower id first, weigh less than `mass`: halves
// the range that holds the last one kept until it is a single token.
void Sampler::keep_top_p(double mass) {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.weight > b.weight || (a.weight == b.weight && a.id < b.id);
  };
  size_t begin = 0;
  size_t end = candidates_.size();
  double weight_before = 0;
  while (end - begin > 1) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(candidates_.begin() + begin, candidates_.begin() + middle, candidates_.begin() + end, before);
    double weight = weight_before;
    for (size_t i = begin; i < middle; ++i) weight += candidates_[i].weight;
    if (weight < mass) {
      begin = middle;
      weight_before = weight;
    } else {
      end = middle;
    }
  }
  candidates_.resize(std::min(begin + 1, candidates_.size()));
}

float log_prob(std::span<const float> logits, int32_t id) {
  const float peak = find_peak(logits).value;
  const float sum = exp_sum(logits, peak, 1);
  check_finite(sum);
  return logits[id] - peak - std::log(sum);
}

}  // namespace pilotfish
