// One target pass over the last token and everything that was drafted after it. Requests may share it (batch.h).
#pragma once

#include <cstdint>
#include <span>

#include "model/model.h"
#include "model/tree_pass.h"
#include "tree/token_tree.h"

namespace pilotfish {

// The rows of that pass: what comes out of row 0 follows last_id, of row i + 1 the drafted token i.
TreePass verification_rows(int32_t last_id, const TokenTree& tree) noexcept;

// Runs them. The target has `context` tokens in its cache. With `gives_hidden` its hidden() are those of the same rows.
Logits verify(Model& target, std::span<const int32_t> block_table, int32_t context, TreePass rows, bool gives_hidden);

}  // namespace pilotfish
