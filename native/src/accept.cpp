#include "accept.h"

#include "row_math.h"

namespace pilotfish {

Accepted accept_greedy(std::span<const int32_t> drafted, const Logits& target, int32_t num_ids) {
  for (size_t i = 0;; ++i) {
    const auto row = static_cast<int32_t>(i);
    const int32_t best = find_peak(target.row(row).first(num_ids)).index;
    if (i == drafted.size() || best != drafted[i]) return {row, best};
  }
}

Accepted accept_sampled(std::span<const int32_t> drafted, std::span<const Distribution> draft, const Logits& target,
                        int32_t num_ids, const SamplingOptions& options, const RandomStream& random,
                        int32_t first_position, Sampler& sampler, Distribution& scratch) {
  using Purpose = RandomStream::Purpose;
  for (size_t i = 0;; ++i) {
    const auto row = static_cast<int32_t>(i);
    const int32_t position = first_position + row;
    const std::span<const float> logits = target.row(row).first(num_ids);
    sampler.process(logits, options, scratch);
    if (i < drafted.size()) {
      const double p = scratch.prob_of(drafted[i]);
      const double q = draft[i].prob_of(drafted[i]);
      if (random.uniform(position, Purpose::kAccept) * q < p) continue;  // kept with probability min(1, p / q)
      // p equal to q but for rounding leaves nothing: then a rejection is rounding too, and p itself is the residual.
      if (!(scratch.subtract(draft[i]) > 0)) sampler.process(logits, options, scratch);
    }
    return {row, scratch.sample(random.uniform(position, Purpose::kTarget))};
  }
}

}  // namespace pilotfish
