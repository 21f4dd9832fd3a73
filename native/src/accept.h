// How many drafted tokens the target keeps, and the token it puts after them. Pure functions of logits and random
// numbers.
#pragma once

#include <cstdint>
#include <span>

#include "model.h"
#include "random_stream.h"
#include "token_chooser.h"

namespace pilotfish {

struct Accepted {
  int32_t num_accepted;
  int32_t next_id;  // after the accepted ones: the correction of a rejected token, or a bonus when none was
};

// `target` has a row after each token, the one before the draft first: drafted.size() + 1 rows. Ids from num_ids on are
// padding of the vocabulary and never chosen. A tie goes to the lowest id, as in plain decoding. `tokens` is the
// sequence so far.
Accepted accept_greedy(std::span<const int32_t> drafted, const Logits& target, int32_t num_ids,
                       std::span<const int32_t> tokens, TokenChooser& chooser);

// Lossless speculative sampling: Leviathan et al., "Fast inference from transformers via speculative decoding", 2023,
// and Chen et al., "Accelerating large language model decoding with speculative sampling", 2023. drafted[i] was drawn
// from draft[i]; the tokens kept are distributed as if each had been drawn from the target. `scratch` holds the
// target's distributions in turn.
Accepted accept_sampled(std::span<const int32_t> drafted, std::span<const Distribution> draft, const Logits& target,
                        int32_t num_ids, std::span<const int32_t> tokens, TokenChooser& chooser,
                        const RandomStream& random, Distribution& scratch);

}  // namespace pilotfish
