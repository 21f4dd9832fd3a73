// One target pass over the last token and everything that was drafted after it.
#pragma once

#include <cstdint>
#include <span>

#include "model/model.h"
#include "model/tree_pass.h"
#include "tree/token_tree.h"

namespace pilotfish {

// Row 0 of the result follows last_id, row i + 1 the drafted token i. The target has `context` tokens in its cache.
// With `gives_hidden` the target's hidden() are those of the same rows.
Logits verify(Model& target, std::span<const int32_t> block_table, int32_t context, int32_t last_id,
              const TokenTree& tree, bool gives_hidden = false);

// The rows of that pass.
TreePass verification_rows(int32_t last_id, const TokenTree& tree) noexcept;

}  // namespace pilotfish
