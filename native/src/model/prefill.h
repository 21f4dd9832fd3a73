// Brings a model's cache up to date with a sequence, a chunk of rows at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "model/model.h"

namespace pilotfish {

// Who wants the residual streams of a prefill's rows: those of the last token, or of all.
struct HiddenReader {
  bool reads_all_rows;
  // Called after each chunk that gave streams, with the index in the sequence of the first of them.
  std::function<void(const Hidden& hidden, int32_t position)> read;
};

// Runs tokens[num_cached..] through the model and returns the logits after the last of them, or nothing if `cancelled`
// became true between two chunks. At least one token must be new. `meanwhile` is called in each chunk, once it has been
// started.
std::optional<Logits> prefill(Model& model, std::span<const int32_t> block_table, std::span<const int32_t> tokens,
                              int32_t num_cached, int32_t chunk, const std::atomic<bool>& cancelled,
                              const HiddenReader* reader = nullptr, const std::function<void()>& meanwhile = {});

}  // namespace pilotfish
