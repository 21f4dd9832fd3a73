#include "draft/model_rows.h"

#include "model/prefill.h"

namespace pilotfish {

std::span<const int32_t> ModelRows::table(const DraftRequest& request) const noexcept {
  return request.block_table.subspan(request.first_token / model_.limits().block_size);
}

std::optional<Logits> ModelRows::begin(const DraftRequest& request, Draft& out) {
  const std::span<const int32_t> seen = request.tokens.subspan(request.first_token);
  const int32_t num_cached = out.num_cached - request.first_token;
  std::optional<Logits> logits;
  if (static_cast<int32_t>(seen.size()) - num_cached <= prefill_chunk_) {
    logits = run_pass(model_, likely_, request,
                      {.ids = seen.subspan(num_cached),
                       .positions = {},
                       .tree_mask = {},
                       .block_table = table(request),
                       .context = num_cached,
                       .num_outputs = 1});
  } else {
    logits = prefill(model_, table(request), seen, num_cached, prefill_chunk_, request.cancelled);
  }
  if (logits) out.num_cached = static_cast<int32_t>(request.tokens.size());
  return logits;
}

Logits ModelRows::run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) {
  const auto num_seen = static_cast<int32_t>(request.tokens.size()) - request.first_token;
  TreePass pass = level_pass(tree, level);
  return run_pass(model_, likely_, request, pass.at(table(request), num_seen - 1));
}

}  // namespace pilotfish
