// A row of logits to what may follow: first the processors of the request, which look at the tokens before the row,
// then its warpers. Draft and target go through the same one, each row with the prefix that plain decoding would have
// there.
#pragma once

#include <cstdint>
#include <span>

#include "sampler.h"

namespace pilotfish {

// What stands before a row.
struct Prefix {
  std::span<const int32_t> tokens;  // the sequence so far
  std::span<const int32_t> path;    // drafted after it, down to the row
};

class TokenChooser {
 public:
  // `sampler` must outlive it.
  TokenChooser(const SamplingOptions& options, Sampler& sampler) noexcept : options_(options), sampler_(sampler) {}

  bool is_greedy() const noexcept { return options_.temperature == 0; }
  // The row after the processors; valid until the next call. May be shorter than the vocabulary.
  std::span<const float> scores(std::span<const float> logits, const Prefix& prefix);
  // The scores after the warpers. Not for greedy decoding, which takes the likeliest score.
  void distribution(std::span<const float> logits, const Prefix& prefix, Distribution& out);

 private:
  const SamplingOptions options_;
  Sampler& sampler_;
};

}  // namespace pilotfish
