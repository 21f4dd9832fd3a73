// Logits to what a token is chosen from: weights over the noise that a draft and its target share, or a distribution.
// The order is that of transformers' warpers: temperature, top-k, top-p, min-p, typical. Pure arithmetic over spans.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sampling/candidates.h"
#include "sampling/shared_noise.h"

namespace pilotfish {

struct SamplingOptions {
  float temperature = 0;  // 0: greedy, which needs no distribution
  int32_t top_k = 0;      // 0: off; tokens that tie with the last one stay
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off; relative to the likeliest token
  // 1: off. Keeps the tokens whose surprise is nearest to the entropy until they have this probability: Meister et al.,
  // "Locally typical sampling", 2023.
  float typical_p = 1;
  uint64_t seed = 0;  // of the shared noise
};

// A token that may be chosen, and how far it is ahead of others: weight / noise (SharedNoise).
struct Ranked {
  int32_t id;
  float score;
};

// Probabilities of the tokens that are left, or of all.
struct Distribution {
  bool is_dense = true;      // probs[i] belongs to token i; else to token ids[i], ascending
  std::vector<int32_t> ids;  // empty if dense
  std::vector<float> probs;

  void reserve(size_t num_ids);
  float prob_of(int32_t id) const;
  // Draws by inversion of u in [0, 1); the probabilities need not sum to 1.
  int32_t sample(double u) const;
  // Sum of the probabilities.
  double mass() const;
  // Replaces p by max(p - factor * other, 0), the residual of speculative sampling; returns its mass.
  float subtract(const Distribution& other, float factor = 1);
  // Does nothing where the token is not among those that are left.
  void set_prob(int32_t id, float prob);
  // Natural log.
  double entropy() const;

 private:
  // Index into probs; probs.size() where the token is not among them.
  size_t find(int32_t id) const;
};

class Sampler {
 public:
  explicit Sampler(size_t max_ids);

  // `logits` has no more than max_ids elements. False when all are -inf, as no token is left, or they are not numbers.
  bool process(std::span<const float> logits, const SamplingOptions& options, Distribution& out);

  // The best tokens by their weights over the noise of `position`, the best first and of equal ones the lower id:
  // `count` of them, at most kMostRanked, or as many as the options leave; none where the logits are not numbers. Of
  // these, such as weigh less than kLeastWeight of the likeliest one are never chosen either, so that they need no
  // noise: this is part of the distribution that tokens follow, as if it were a min_p after all options. Valid until
  // the next call.
  static constexpr size_t kMostRanked = 64;
  static constexpr float kLeastWeight = 0x1p-24f;
  std::span<const Ranked> rank(std::span<const float> logits, const SamplingOptions& options, const SharedNoise& noise,
                               int32_t position, size_t count);

  // The likeliest ids, likeliest first and the lower id first among equals: as many as ids_out holds, filled up with
  // -1.
  void find_likeliest(std::span<const float> logits, std::span<int32_t> ids_out);

  size_t max_ids() const noexcept { return scores_.size(); }
  // Room for a row of logits that is being processed.
  std::span<float> scores() noexcept { return scores_; }

 private:
  // What is known of the first filter that is on bounds the logits of the tokens that pass it, so that few are looked
  // at.
  struct FirstFilter {
    float least_logit;
    double mass = 0;                        // of all tokens, by top_p or typical_p
    std::optional<float> mean_height = {};  // of all tokens, by typical_p
  };

  FirstFilter first_filter(std::span<const float> logits, float peak, const SamplingOptions& options);
  static bool filters(const SamplingOptions& options) noexcept;
  // Blocks of ids with their largest weights, for rank(): of the candidates, or of a whole row.
  void find_candidate_blocks();
  void find_row_blocks(float peak, float scale);
  // Scores what is left of a block, and puts it where it belongs among the best `count`.
  using BlockNoise = std::array<float, SharedNoise::kBlock>;
  void rank_candidates(int32_t index, const BlockNoise& noise, size_t count);
  void rank_row(std::span<const float> logits, float peak, float scale, int32_t block, const BlockNoise& noise,
                size_t count);
  void insert(Ranked token, size_t count);
  bool process_sparse(std::span<const float> logits, float peak, const SamplingOptions& options);
  // False where the row holds a NaN.
  bool find_block_peaks(std::span<const float> logits);
  // The k-th largest block peak: at least k elements reach it. -inf when there are fewer blocks.
  float kth_block_peak(size_t k);

  std::vector<float> block_peaks_;
  std::vector<float> sorted_peaks_;
  std::vector<float> scores_;
  // Of rank(): blocks of ids, their largest weights and the bounds of their scores, and the first candidate of each.
  std::vector<int32_t> blocks_, first_candidates_;
  std::vector<float> block_weights_, block_bounds_;
  std::vector<Ranked> ranked_;
  Candidates candidates_;
};

// A target whose logits are not numbers is damaged, however well its files match their hashes.
[[noreturn]] void fail_not_numbers();

// Natural logarithms of the softmax of a target's unprocessed logits, which it refers to. Throws PF_BUNDLE_CORRUPT when
// they are not numbers.
class LogProbs {
 public:
  explicit LogProbs(std::span<const float> logits);
  // `peak` is the largest of them.
  LogProbs(std::span<const float> logits, float peak);
  float operator[](int32_t id) const noexcept { return logits_[id] - peak_ - log_sum_; }

 private:
  const std::span<const float> logits_;
  const float peak_;
  float log_sum_;
};

}  // namespace pilotfish
