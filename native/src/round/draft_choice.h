// What a request's options let its rounds draft from.
#pragma once

#include "pilotfish.h"
#include "plan/controller.h"

namespace pilotfish {

class Engine;

// Throws PF_INVALID_ARGUMENT where the bundle lacks a named source.
DraftChoice draft_choice(const pf_generate_options& options, Engine& engine);

}  // namespace pilotfish
