#include "draft/last_row_drafter.h"

#include <cassert>

namespace pilotfish {

Pass LastRows::take_last(const DraftRequest& request, FloatRows& streams, int32_t first_row) {
  const HeadState& state = *request.head_state;
  // Of the token before the last one, which no pass of the target has run yet.
  assert(state.position == int32_t(request.tokens.size()) - 2);
  streams.take(first_row, *state.streams, 0, 1);
  return {.ids = request.tokens.last(1),
          .positions = {},
          .tree_mask = {},
          .block_table = {},
          .context = 0,
          .num_outputs = 1};
}

}  // namespace pilotfish
