#include "model/prefill.h"

#include <algorithm>
#include <cassert>

namespace pilotfish {

std::optional<Logits> prefill(Model& model, std::span<const int32_t> block_table, std::span<const int32_t> tokens,
                              int32_t num_cached, int32_t chunk, const std::atomic<bool>& cancelled,
                              const HiddenReader* reader, const std::function<void()>& meanwhile) {
  const auto num_tokens = static_cast<int32_t>(tokens.size());
  assert(num_cached < num_tokens);
  std::optional<Logits> logits;
  for (int32_t begin = num_cached; begin < num_tokens; begin += chunk) {
    if (cancelled.load(std::memory_order_relaxed)) return std::nullopt;
    const int32_t num_rows = std::min(chunk, num_tokens - begin);
    const bool is_last = begin + num_rows == num_tokens;
    const int32_t num_hidden = !reader ? 0 : reader->reads_all_rows ? num_rows : is_last ? 1 : 0;
    logits = model.forward({.ids = tokens.subspan(begin, num_rows),
                            .positions = {},
                            .tree_mask = {},
                            .block_table = block_table,
                            .context = begin,
                            .num_outputs = is_last ? 1 : 0,
                            .num_hidden = num_hidden},
                           meanwhile);
    if (num_hidden > 0) reader->read(model.hidden(), begin + num_rows - num_hidden);
  }
  return logits;
}

}  // namespace pilotfish
