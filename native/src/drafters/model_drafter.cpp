#include "drafters/model_drafter.h"

#include "prefill.h"
#include "row_math.h"

namespace pilotfish {

bool ModelDrafter::propose(const DraftRequest& request, Draft& out) {
  out.tree.clear();
  std::optional<Logits> logits =
      prefill(model_, request.block_table, request.tokens, request.num_cached, prefill_chunk_, request.cancelled);
  const auto context = static_cast<int32_t>(request.tokens.size());
  float confidence = 1;
  for (int32_t i = 0;; ++i) {
    if (!logits || request.cancelled.load(std::memory_order_relaxed)) return false;
    const auto [id, token_confidence] = choose(request, *logits, i, out);
    out.tree.add(id, i == 0 ? TokenTree::kRoot : i - 1);
    confidence *= token_confidence;
    if (out.tree.size() == request.num_tokens || confidence < request.least_confidence) return true;
    logits = model_.forward({.ids = std::span(&id, 1),
                             .positions = {},
                             .tree_mask = {},
                             .block_table = request.block_table,
                             .context = context + i,
                             .num_outputs = 1});
  }
}

ModelDrafter::Choice ModelDrafter::choose(const DraftRequest& request, const Logits& logits, int32_t index,
                                          Draft& out) const {
  const std::span<const float> row = logits.row(0).first(num_ids_);
  const Prefix prefix{request.tokens, out.tree.ids()};
  if (request.chooser.is_greedy()) {
    const std::span<const float> scores = request.chooser.scores(row, prefix);
    const Peak peak = find_peak(scores);
    const bool is_asked = request.least_confidence > 0;
    return {peak.index, is_asked ? 1 / exp_sum(scores, peak.value, 1) : 1.0f};
  }
  Distribution& distribution = out.distributions[index];
  request.chooser.distribution(row, prefix, distribution);
  const auto position = static_cast<int32_t>(request.tokens.size()) + index;
  return {distribution.sample(request.random.uniform(position, RandomStream::Purpose::kDraft)),
          find_peak(distribution.probs).value};
}

}  // namespace pilotfish
