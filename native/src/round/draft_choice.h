// What a request's options let its rounds draft from.
#pragma once

#include <cstdint>

#include "base/token_tree.h"
#include "pilotfish.h"
#include "plan/controller.h"

namespace pilotfish {

class Engine;

// Throws PF_INVALID_ARGUMENT where the bundle lacks a named source, or its head drafts no such tree.
DraftChoice draft_choice(const pf_generate_options& options, Engine& engine);
// Of the largest draft of a round.
TreeLimits limits_of(const DraftChoice& choice, const pf_generate_options& options, int32_t max_draft_tokens);

}  // namespace pilotfish
