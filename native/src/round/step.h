// One request's part in a round. A failure is its own: the others' steps go on.
#pragma once

#include <span>

#include "base/status.h"
#include "pilotfish.h"
#include "round/request.h"

namespace pilotfish {

struct Step {
  Request* request;
  std::span<pf_token> tokens_out;
  bool in_chunks;         // one chunk of a prompt a step, all but the last of which write nothing
  size_t num_tokens = 0;  // written
  pf_finish finish = PF_FINISH_NONE;
  pf_status status = PF_OK;
};

inline void fail(Step& step, pf_status status) {
  step.status = status;
  step.request->fail_step(last_error());
}

// Nothing where the step has failed already.
template <typename Body>
void attempt(Step& step, Body&& body) {
  if (step.status != PF_OK) return;
  const pf_status status = guard(body);
  if (status != PF_OK) fail(step, status);
}

}  // namespace pilotfish
