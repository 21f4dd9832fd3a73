#include "drafters/model_rows.h"

#include "prefill.h"

namespace pilotfish {

std::span<const int32_t> ModelRows::table(const DraftRequest& request) const noexcept {
  return request.block_table.subspan(request.first_token / model_.limits().block_size);
}

std::optional<Logits> ModelRows::begin(const DraftRequest& request, Draft& out) {
  std::optional<Logits> logits = prefill(model_, table(request), request.tokens.subspan(request.first_token),
                                         out.num_cached - request.first_token, prefill_chunk_, request.cancelled);
  if (logits) out.num_cached = static_cast<int32_t>(request.tokens.size());
  return logits;
}

Logits ModelRows::run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) {
  const auto num_seen = static_cast<int32_t>(request.tokens.size()) - request.first_token;
  return level_pass(tree, level).forward(model_, table(request), num_seen - 1);
}

}  // namespace pilotfish
