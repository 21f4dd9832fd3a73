// The tokens of a row that are still in the running, and the filters that take some away. Each filter leaves the order
// by id as it is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pilotfish {

class Candidates {
 public:
  explicit Candidates(size_t max_ids);

  std::span<const int32_t> ids() const noexcept { return {ids_.data(), size_}; }
  // exp of the heights.
  std::span<const float> weights() const noexcept { return {weights_.data(), size_}; }
  double mass() const noexcept;
  // Of the heights, by weight.
  float mean_height() const noexcept;

  // The tokens whose logits are at least `least`; peaks are block_peaks of the row.
  void collect(std::span<const float> row, std::span<const float> peaks, float least);
  // Keeps the k largest logits, and those that equal the last of them.
  void keep_top_k(size_t k);
  // The ids of the largest logits, largest first and the lower id first among equals; -1 where there are no more.
  void find_largest(std::span<int32_t> ids_out);
  // Sets the heights to (logit - peak) * scale, and the weights.
  void weigh(float peak, float scale);
  // Keeps the likeliest until they weigh `mass`; of equal ones the lower ids.
  void keep_top_p(double mass);
  void keep_min_p(float least_weight);
  // Keeps those whose heights are nearest to `height` until they weigh `mass`, and those that are as near as the last.
  void keep_nearest(float height, double mass);

 private:
  struct Key {
    float distance;
    int32_t index;
  };
  static bool is_before(const Key& a, const Key& b) noexcept {
    return a.distance < b.distance || (a.distance == b.distance && a.index < b.index);
  }

  // The last token that is kept when tokens are taken by distance, equal ones by index, until they weigh `mass`.
  Key find_last(double mass);
  Key find_last(std::span<Key> keys, double mass) const;
  // Keeps the candidates whose index fulfils the predicate.
  template <typename Predicate>
  void keep(Predicate is_kept);

  // [max_ids] of which the first size_ are valid; never resized, since that would fill them
  size_t size_ = 0;
  std::vector<int32_t> ids_;  // ascending
  std::vector<float> logits_, heights_, weights_, distances_;
  std::vector<float> largest_;
  std::vector<Key> keys_;
};

}  // namespace pilotfish
