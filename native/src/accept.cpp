#include "accept.h"

#include "row_math.h"

namespace pilotfish {

Accepted accept_greedy(std::span<const int32_t> drafted, const Logits& target, int32_t num_ids,
                       std::span<const int32_t> tokens, TokenChooser& chooser) {
  for (size_t i = 0;; ++i) {
    const auto row = static_cast<int32_t>(i);
    const Prefix prefix{tokens, drafted.first(i)};
    const int32_t best = find_peak(chooser.scores(target.row(row).first(num_ids), prefix)).index;
    if (i == drafted.size() || best != drafted[i]) return {row, best};
  }
}

Accepted accept_sampled(std::span<const int32_t> drafted, std::span<const Distribution> draft, const Logits& target,
                        int32_t num_ids, std::span<const int32_t> tokens, TokenChooser& chooser,
                        const RandomStream& random, Distribution& scratch) {
  using Purpose = RandomStream::Purpose;
  for (size_t i = 0;; ++i) {
    const auto row = static_cast<int32_t>(i);
    const int32_t position = static_cast<int32_t>(tokens.size()) + row;
    const Prefix prefix{tokens, drafted.first(i)};
    const std::span<const float> logits = target.row(row).first(num_ids);
    chooser.distribution(logits, prefix, scratch);
    if (i < drafted.size()) {
      const double p = scratch.prob_of(drafted[i]);
      const double q = draft[i].prob_of(drafted[i]);
      if (random.uniform(position, Purpose::kAccept) * q < p) continue;  // kept with probability min(1, p / q)
      // p equal to q but for rounding leaves nothing: then a rejection is rounding too, and p itself is the residual.
      if (!(scratch.subtract(draft[i]) > 0)) chooser.distribution(logits, prefix, scratch);
    }
    return {row, scratch.sample(random.uniform(position, Purpose::kTarget))};
  }
}

}  // namespace pilotfish
