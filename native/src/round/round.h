// Rounds of requests, which share passes of the target: plan, draft, verify, accept, emit. A single request is a round
// of one. Each drafts by itself, one pass verifies what all of them drafted, each accepts by itself. A row's bits do
// not depend on the other rows of its pass, so that nobody's tokens change with the company.
#pragma once

#include <span>

#include "round/step.h"

namespace pilotfish {

// A round of each request, as many at a time as share a pass. Throws PF_INVALID_ARGUMENT, and steps nothing, unless the
// requests are different ones of one engine.
void run_rounds(std::span<Step> steps);

}  // namespace pilotfish
