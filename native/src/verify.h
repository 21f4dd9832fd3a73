// One target pass over the last token and everything that was drafted after it. Requests may share it (batch.h).
#pragma once

#include <cstdint>

#include "model/tree_pass.h"
#include "tree/token_tree.h"

namespace pilotfish {

// The rows of that pass: what comes out of row 0 follows last_id, of row i + 1 the drafted token i.
TreePass verification_rows(int32_t last_id, const TokenTree& tree) noexcept;

}  // namespace pilotfish
