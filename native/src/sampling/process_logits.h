// What a request would do to one row of logits, without an engine.
#pragma once

#include <cstdint>
#include <span>

#include "pilotfish.h"

namespace pilotfish {

// See pf_process_logits; the options have been checked. Throws PF_INVALID_ARGUMENT for ids outside the row and
// PF_NO_TOKEN_LEFT.
void process_logits(const pf_generate_options& options, std::span<const float> logits, std::span<const int32_t> ids,
                    size_t num_prompt_tokens, std::span<float> scores_out, std::span<float> probs_out);

}  // namespace pilotfish
