// How many requests share a pass of the target, and how many rows it then has.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pilotfish.h"

namespace pilotfish {

inline constexpr int32_t kMostTogether = PF_MOST_TOGETHER;

// All requests that may be open, up to kMostTogether; on a device one.
inline int32_t max_together(const pf_engine_options& options) noexcept {
  return options.device == PF_DEVICE_CPU ? std::min(options.num_sequences, kMostTogether) : 1;
}

// Rows of the widest of such passes: a token of each request, and what the one that drafts most has drafted.
inline int32_t max_verified_rows(const pf_engine_options& options) noexcept {
  return options.max_draft_tokens + max_together(options);
}

}  // namespace pilotfish
