// Brings a model's cache up to date with a sequence, a chunk of rows at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "model.h"

namespace pilotfish {

// Runs tokens[num_cached..] through the model and returns the logits after the last of them, or nothing if `cancelled`
// became true between two chunks. At least one token must be new.
std::optional<Logits> prefill(Model& model, std::span<const int32_t> block_table, std::span<const int32_t> tokens,
                              int32_t num_cached, int32_t chunk, const std::atomic<bool>& cancelled);

}  // namespace pilotfish
