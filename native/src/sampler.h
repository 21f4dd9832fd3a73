// Logits to the distribution that a token is drawn from. The order is that of transformers' warpers: temperature,
// top-k, top-p, min-p. Pure arithmetic over spans.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pilotfish {

struct SamplingOptions {
  float temperature = 0;  // 0: greedy, which needs no distribution
  int32_t top_k = 0;      // 0: off; tokens that tie with the last one stay
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off; relative to the likeliest token
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
  // Makes a token impossible; returns the mass that is left.
  double remove(int32_t id);
  // Undoes that: the probability was prob_of(id).
  void restore(int32_t id, float prob);

 private:
  // Index into probs; probs.size() where the token is not among them.
  size_t find(int32_t id) const;
};

class Sampler {
 public:
  explicit Sampler(size_t max_ids);

  // `logits` has no more than max_ids elements. Throws PF_INTERNAL when they are not numbers.
  void process(std::span<const float> logits, const SamplingOptions& options, Distribution& out);

 private:
  struct Candidate {
    int32_t id;
    float logit;
    float weight;  // exp((logit - peak) / temperature)
  };

  void collect(std::span<const float> logits, float least);
  void keep_top_k(size_t top_k);
  void keep_top_p(double mass);
  void process_sparse(std::span<const float> logits, float peak, const SamplingOptions& options);

  std::vector<float> block_peaks_;
  std::vector<float> sorted_peaks_;
  std::vector<Candidate> candidates_;
};

// Natural log of the softmax of unprocessed logits. Throws PF_INTERNAL when they are not numbers.
float log_prob(std::span<const float> logits, int32_t id);

}  // namespace pilotfish
