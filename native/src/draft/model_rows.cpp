#include "draft/model_rows.h"

#include "model/prefill.h"

namespace pilotfish {

std::span<const int32_t> ModelRows::table(const DraftRequest& request) const noexcept {
  return request.block_table.subspan(request.first_token / model_.limits().block_size);
}

Pass ModelRows::unread(const DraftRequest& request, const Draft& out) const noexcept {
  const int32_t num_cached = out.num_cached - request.first_token;
  return {.ids = request.tokens.subspan(out.num_cached),
          .positions = {},
          .tree_mask = {},
          .block_table = table(request),
          .context = num_cached,
          .num_outputs = 1};
}

std::optional<Logits> ModelRows::begin(const DraftRequest& request, Draft& out) {
  const Pass pass = unread(request, out);
  std::optional<Logits> logits;
  if (static_cast<int32_t>(pass.ids.size()) <= prefill_chunk_) {
    logits = run_pass(model_, likely_, request, pass);
  } else {
    logits = prefill(model_, table(request), request.tokens.subspan(request.first_token), pass.context, prefill_chunk_,
                     request.cancelled);
  }
  if (logits) out.num_cached = static_cast<int32_t>(request.tokens.size());
  return logits;
}

Pass ModelRows::share_begin(const DraftRequest& request, Draft& out, int32_t) {
  const Pass pass = unread(request, out);
  out.num_cached = static_cast<int32_t>(request.tokens.size());
  return pass;
}

Pass ModelRows::share_level(const DraftRequest& request, TreePass& rows) {
  return rows.at(table(request), static_cast<int32_t>(request.tokens.size()) - request.first_token - 1);
}

Logits ModelRows::run_level(const DraftRequest& request, const TokenTree& tree, std::span<const int32_t> level) {
  TreePass pass = level_pass(tree, level);
  return run_pass(model_, likely_, request, share_level(request, pass));
}

}  // namespace pilotfish
