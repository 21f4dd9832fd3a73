#include "draft/draft_rows.h"

#include <algorithm>

namespace pilotfish {

int32_t num_choices(const DraftRows& rows, int32_t num_ids) noexcept {
  return rows.logit_ids().empty() ? std::min(num_ids, rows.num_logits()) : rows.num_logits();
}

static_assert(DraftRequest::kMostChildren <= kMostLikely, "a device finds the likeliest tokens of a row");

Logits run_pass(Model& model, LikelyRows* likely, const DraftRequest& request, const Pass& pass) {
  if (!likely || pass.num_outputs == 0 || !request.needs_likeliest_only()) return model.forward(pass);
  model.start(pass);
  return {.data = nullptr,
          .num_rows = pass.num_outputs,
          .width = model.num_logits(),
          .likeliest = likely->find(model.device_logits(), pass.num_outputs)};
}

TreePass level_pass(const TokenTree& tree, std::span<const int32_t> level) {
  TreePass pass;
  for (const int32_t index : level) {
    uint64_t mask = 1;
    for (int32_t i = index; i != TokenTree::kRoot; i = tree[i].parent) mask |= uint64_t{1} << tree[i].draft_row;
    pass.add(tree[index].id, tree[index].depth, mask);
  }
  return pass;
}

}  // namespace pilotfish
