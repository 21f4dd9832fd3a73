// The option structs of the C API: defaults, limits and the machine's own values.
#pragma once

#include <cstdint>

#include "pilotfish.h"
#include "tree/tree_shape.h"

namespace pilotfish {

pf_engine_options default_engine_options() noexcept;
pf_generate_options default_generate_options() noexcept;

// Throw PF_INVALID_ARGUMENT naming the field, its value and its limit.
void check_options(const pf_engine_options& options);
void check_options(const pf_generate_options& options, int32_t max_draft_tokens);

bool has_tree(const pf_generate_options& options) noexcept;
// The tree that checked options ask for; a chain of no tokens where they ask for none.
TreeShape tree_shape(const pf_generate_options& options) noexcept;

// Requests whose rounds share a pass of the target: all that may be open, up to PF_MOST_TOGETHER; on a device one.
int32_t max_together(const pf_engine_options& options) noexcept;
// Rows of the widest of such passes: a token of each request, and what the one that drafts most has drafted.
int32_t max_verified_rows(const pf_engine_options& options) noexcept;

inline constexpr int32_t kMostTogether = PF_MOST_TOGETHER;

}  // namespace pilotfish
