// What a round on a device came to, told in the words of one made by the host. Pure.
#pragma once

#include <cstdint>

#include "base/token_tree.h"
#include "device/round_kernels.h"
#include "draft/draft.h"
#include "plan/confidence_rates.h"
#include "round/accept.h"
#include "sampling/token_chooser.h"

namespace pilotfish {

// The drafted chain as a tree; all but its last token are in its source's cache.
void write_chain(const RoundOutcome& outcome, int32_t num_drafted, Source source, Draft& out);

// The drafted tree, of as many tokens as it may have; those that were continued are in the source's cache.
void write_tree(const RoundOutcome& outcome, TreeLimits drafted, const ConfidenceRates& rates, Source source,
                Draft& out);

// The accepted beginning of that chain. Nothing is accepted after a token that ends the text.
Accepted accepted_of(const RoundOutcome& outcome, const TokenChooser& chooser);

// Of a tree of certain tokens (accept.h) whose rows have chosen, from row first_row of the outcome on: the path of
// chosen tokens, up to one that ends the text.
Accepted accepted_of(const RoundOutcome& outcome, const TokenTree& tree, const TokenChooser& chooser,
                     int32_t first_row = 0);

}  // namespace pilotfish
