#include "sampling/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "sampling/row_math.h"
#include "sampling/row_select.h"

namespace pilotfish {

Candidates::Candidates(size_t max_ids)
    : ids_(max_ids), logits_(max_ids), heights_(max_ids), weights_(max_ids), distances_(max_ids) {
  largest_.reserve(max_ids);
  keys_.reserve(max_ids);
}

double Candidates::mass() const noexcept {
  double mass = 0;
  for (const float weight : weights()) mass += weight;
  return mass;
}

float Candidates::mean_height() const noexcept {
  double sum = 0;
  for (size_t i = 0; i < size_; ++i) {
    if (weights_[i] > 0) sum += static_cast<double>(weights_[i]) * heights_[i];
  }
  return static_cast<float>(sum / mass());
}

void Candidates::collect(std::span<const float> row, std::span<const float> peaks, float least) {
  size_ = select_at_least(row, peaks, least, ids_.data(), logits_.data());
}

void Candidates::keep_top_k(size_t k) {
  if (k >= size_) return;
  largest_.assign(logits_.begin(), logits_.begin() + static_cast<std::ptrdiff_t>(size_));
  const auto kth = largest_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(largest_.begin(), kth, largest_.end(), std::greater<>());
  keep([this, least = *kth](size_t i) { return logits_[i] >= least; });
}

void Candidates::find_largest(std::span<int32_t> ids_out) {
  keys_.clear();
  for (size_t i = 0; i < size_; ++i) keys_.push_back({-logits_[i], static_cast<int32_t>(i)});
  const size_t count = std::min(ids_out.size(), size_);
  std::partial_sort(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(count), keys_.end(),
                    &Candidates::is_before);
  for (size_t i = 0; i < ids_out.size(); ++i) ids_out[i] = i < count ? ids_[keys_[i].index] : -1;
}

void Candidates::weigh(float peak, float scale) {
  for (size_t i = 0; i < size_; ++i) heights_[i] = (logits_[i] - peak) * scale;
  exp_into({logits_.data(), size_}, peak, scale, weights_.data());
}

void Candidates::keep_top_p(double mass) {
  for (size_t i = 0; i < size_; ++i) distances_[i] = -heights_[i];
  const Key last = find_last(mass);
  keep([this, last](size_t i) {
    return distances_[i] < last.distance || (distances_[i] == last.distance && static_cast<int32_t>(i) <= last.index);
  });
}

void Candidates::keep_min_p(float least_weight) {
  keep([this, least_weight](size_t i) { return weights_[i] >= least_weight; });
}

void Candidates::keep_nearest(float height, double mass) {
  for (size_t i = 0; i < size_; ++i) distances_[i] = std::abs(heights_[i] - height);
  const Key last = find_last(mass);
  keep([this, last](size_t i) { return distances_[i] <= last.distance; });
}

// Distances are first sorted into buckets, whose weights say in which of them the last one is, so that only that one
// needs a closer look.
Candidates::Key Candidates::find_last(double mass) {
  constexpr size_t kNumBuckets = 128;
  constexpr float kFarthest = 100;  // heights below weigh nothing
  const float most = std::min(find_peak({distances_.data(), size_}).value, kFarthest);
  const float scale = most > 0 ? (kNumBuckets - 1) / most : 0;
  const auto bucket_of = [&](size_t i) { return static_cast<size_t>(std::min(distances_[i], most) * scale); };
  std::array<double, kNumBuckets> weights{};
  for (size_t i = 0; i < size_; ++i) weights[bucket_of(i)] += weights_[i];
  size_t bucket = 0;
  double before = 0;  // weight of the buckets before it
  double sum = 0;
  for (size_t i = 0; i < kNumBuckets && sum < mass; ++i) {
    if (weights[i] == 0) continue;  // rounding may keep the sum below `mass`: then the last bucket that weighs anything
    bucket = i;
    before = sum;
    sum += weights[i];
  }
  keys_.clear();
  for (size_t i = 0; i < size_; ++i) {
    if (bucket_of(i) == bucket) keys_.push_back({distances_[i], static_cast<int32_t>(i)});
  }
  return find_last(keys_, mass - before);
}

// Halves the range that holds the last one until it is a single one.
Candidates::Key Candidates::find_last(std::span<Key> keys, double mass) const {
  while (keys.size() > 1) {
    const size_t middle = keys.size() / 2;
    std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(middle), keys.end(),
                     &Candidates::is_before);
    double weight = 0;
    for (const Key& key : keys.first(middle)) weight += weights_[key.index];
    if (weight < mass) {
      mass -= weight;
      keys = keys.subspan(middle);
    } else {
      keys = keys.first(middle);
    }
  }
  return keys.front();
}

template <typename Predicate>
void Candidates::keep(Predicate is_kept) {
  size_t count = 0;
  for (size_t i = 0; i < size_; ++i) {
    if (!is_kept(i)) continue;
    ids_[count] = ids_[i];
    logits_[count] = logits_[i];
    heights_[count] = heights_[i];
    weights_[count] = weights_[i];
    ++count;
  }
  size_ = count;
}

}  // namespace pilotfish
