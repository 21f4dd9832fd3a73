// The option structs of the C API: defaults, limits and the machine's own values.
#pragma once

#include <cstdint>

#include "base/token_tree.h"
#include "pilotfish.h"

namespace pilotfish {

pf_engine_options default_engine_options() noexcept;
pf_generate_options default_generate_options() noexcept;

// Throw PF_INVALID_ARGUMENT naming the field, its value and its limit.
void check_options(const pf_engine_options& options);
void check_options(const pf_generate_options& options, int32_t max_draft_tokens);

// The tree that checked options ask for, which has no tokens where they ask for none.
TreeLimits tree_limits(const pf_generate_options& options) noexcept;

}  // namespace pilotfish
