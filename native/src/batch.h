// In-flight batching: steps of several requests that share passes of the target. Each drafts by itself, one pass
// verifies what all of them drafted, each accepts by itself. A row's bits do not depend on the other rows of its pass,
// so that nobody's tokens change with the company. On a device, which makes whole rounds by itself, they take turns.
#pragma once

#include <span>

#include "pilotfish.h"
#include "request.h"

namespace pilotfish {

// One request's part in a batch. A failure is its own: the others' steps go on.
struct BatchStep {
  Request* request;
  std::span<pf_token> tokens_out;
  size_t num_tokens = 0;  // written
  pf_finish finish = PF_FINISH_NONE;
  pf_status status = PF_OK;
};

// Throws PF_INVALID_ARGUMENT, and steps nothing, unless the requests are different ones of one engine.
void step_together(std::span<BatchStep> steps);

}  // namespace pilotfish
