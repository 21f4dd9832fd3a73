// How many requests share a pass, and how many rows it then has.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pilotfish.h"

namespace pilotfish {

inline constexpr int32_t kMostTogether = PF_MOST_TOGETHER;

// All requests that may be open, up to kMostTogether: they are in one round.
inline int32_t max_together(const pf_engine_options& options) noexcept {
  return std::min(options.num_sequences, kMostTogether);
}

// Rows of the widest of such passes: a token of each request, and what the one that drafts most has drafted. On a
// device they draft as much each, as far as its kernels have rows.
inline int32_t max_verified_rows(const pf_engine_options& options) noexcept {
  const bool shares_on_device = options.device != PF_DEVICE_CPU && max_together(options) > 1;
  return shares_on_device ? PF_MOST_DRAFT_TOKENS + 1 : options.max_draft_tokens + max_together(options);
}

// Rows of the widest of the passes in which requests draft, if they do so together: as many as a mask has bits; and how
// many of these give logits.
inline int32_t max_rows_to_draft(const pf_engine_options& options) noexcept {
  return max_together(options) > 1 ? PF_MOST_DRAFT_TOKENS + 1 : options.max_draft_tokens + 1;
}
inline int32_t max_drafted_rows(const pf_engine_options& options) noexcept {
  return std::min(max_verified_rows(options), PF_MOST_DRAFT_TOKENS + 1);
}

}  // namespace pilotfish
