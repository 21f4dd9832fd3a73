// From a bundle's head to what drafts with it, and the memory that this takes.
#pragma once

#include <cstdint>
#include <memory>

#include "draft/head_drafter.h"
#include "model/head.h"
#include "model/model.h"
#include "pilotfish.h"

namespace pilotfish {

// Rows of a target's pass whose streams a head may ask for; 0 without one.
int32_t max_hidden_rows(const Manifest& manifest, const pf_engine_options& options) noexcept;
// Of its buffers, and of those of the target for it; 0 without one.
uint64_t head_buffer_bytes(const Manifest& manifest, const pf_engine_options& options) noexcept;
// Of its cache for so many tokens, and of what each sequence keeps until it is read; 0 for a head without one.
uint64_t head_cache_bytes(const Manifest& manifest, const pf_engine_options& options, uint64_t num_tokens) noexcept;

// `width` columns has each of the head's taps; the target has the limits. The head must outlive the result.
std::unique_ptr<HeadDrafter> make_head_drafter(const Head& head, int32_t width, int32_t num_ids,
                                               const ModelLimits& limits);

}  // namespace pilotfish
