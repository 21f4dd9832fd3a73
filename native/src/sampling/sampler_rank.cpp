// Choosing by shared noise: only blocks of ids whose bound reaches the best scores so far are looked into.

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "sampling/row_math.h"
#include "sampling/sampler.h"

namespace pilotfish {
namespace {

constexpr size_t kBlock = SharedNoise::kBlock;
static_assert(kBlock == kPeakBlock);

// A weight of the block may be above that of its largest logit by the rounding of exp.
constexpr float kSlack = 1.000001f;

bool is_before(const Ranked& a, const Ranked& b) { return a.score > b.score || (a.score == b.score && a.id < b.id); }

}  // namespace

std::span<const Ranked> Sampler::rank(std::span<const float> logits, const SamplingOptions& options,
                                      const SharedNoise& noise, int32_t position, size_t count) {
  assert(options.temperature > 0 && count >= 1 && count <= kMostRanked);
  ranked_.clear();
  if (logits.empty() || !find_block_peaks(logits)) return {};
  const float peak = find_peak(block_peaks_).value;
  if (!std::isfinite(peak)) return {};
  const bool is_filtered = filters(options);
  const float scale = 1.0f / options.temperature;
  if (is_filtered) {
    if (!process_sparse(logits, peak, options)) return {};
    candidates_.keep_min_p(kLeastWeight * find_peak(candidates_.weights()).value);
    find_candidate_blocks();
  } else {
    find_row_blocks(peak, scale);
  }
  block_bounds_.resize(blocks_.size());
  noise.bound(position, blocks_, block_weights_.data(), block_bounds_.data());
  for (;;) {
    const Peak next = find_peak(block_bounds_);
    if (!(next.value > 0) || (ranked_.size() == count && next.value * kSlack < ranked_.back().score)) return ranked_;
    block_bounds_[next.index] = 0;
    std::array<float, kBlock> numbers;
    noise.fill(position, blocks_[next.index], numbers);
    if (is_filtered) {
      rank_candidates(next.index, numbers, count);
    } else {
      rank_row(logits, peak, scale, next.index, numbers, count);
    }
  }
}

void Sampler::rank_candidates(int32_t index, const BlockNoise& noise, size_t count) {
  const std::span<const int32_t> ids = candidates_.ids();
  const int32_t first_id = blocks_[index] * SharedNoise::kBlock;
  for (size_t i = first_candidates_[index]; i < ids.size() && ids[i] < first_id + SharedNoise::kBlock; ++i) {
    insert({ids[i], candidates_.weights()[i] / noise[ids[i] - first_id]}, count);
  }
}

void Sampler::rank_row(std::span<const float> logits, float peak, float scale, int32_t block, const BlockNoise& noise,
                       size_t count) {
  const size_t first_id = size_t(block) * kBlock;
  const std::span<const float> row = logits.subspan(first_id, std::min(kBlock, logits.size() - first_id));
  std::array<float, kBlock> weights;
  exp_into(row, peak, scale, weights.data());
  for (size_t i = 0; i < row.size(); ++i) {
    if (weights[i] >= kLeastWeight) insert({static_cast<int32_t>(first_id + i), weights[i] / noise[i]}, count);
  }
}

void Sampler::find_candidate_blocks() {
  blocks_.clear();
  block_weights_.clear();
  first_candidates_.clear();
  const std::span<const int32_t> ids = candidates_.ids();
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t block = ids[i] / static_cast<int32_t>(kBlock);
    const float weight = candidates_.weights()[i];
    if (blocks_.empty() || blocks_.back() != block) {
      blocks_.push_back(block);
      block_weights_.push_back(weight);
      first_candidates_.push_back(static_cast<int32_t>(i));
    } else {
      block_weights_.back() = std::max(block_weights_.back(), weight);
    }
  }
}

void Sampler::find_row_blocks(float peak, float scale) {
  blocks_.resize(block_peaks_.size());
  block_weights_.resize(block_peaks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = static_cast<int32_t>(i);
  exp_into(block_peaks_, peak, scale, block_weights_.data());
  for (float& weight : block_weights_) {
    if (weight * kSlack < kLeastWeight) weight = 0;  // none of its ids can be chosen
  }
}

void Sampler::insert(Ranked token, size_t count) {
  if (ranked_.size() == count && !is_before(token, ranked_.back())) return;
  ranked_.insert(std::upper_bound(ranked_.begin(), ranked_.end(), token, is_before), token);
  if (ranked_.size() > count) ranked_.pop_back();
}

}  // namespace pilotfish
