#include "draft/make_head_drafter.h"

#include <algorithm>

#include "base/pass_limits.h"
#include "draft/eagle_drafter.h"
#include "draft/medusa_rows.h"
#include "draft/mlp_rows.h"

namespace pilotfish {
namespace {

uint64_t rows_bytes(const HeadEntry& head, uint64_t width, uint64_t num_outputs, int32_t num_together) {
  switch (head.kind.graphs) {
    case HeadGraphs::kHeads:
      return MedusaRows::num_bytes(head, width, num_together);
    case HeadGraphs::kStages:
      return MlpRows::num_bytes(head, width, num_outputs, num_together);
    case HeadGraphs::kLayer:
      break;
  }
  return EagleRows::num_bytes(head, width, num_outputs, num_together);
}

}  // namespace

int32_t max_hidden_rows(const Manifest& manifest, const pf_engine_options& options) noexcept {
  if (!manifest.head) return 0;
  const int32_t num_verified = max_verified_rows(options);
  return manifest.head->has_layer() ? std::max(options.prefill_chunk, num_verified) : num_verified;
}

uint64_t head_buffer_bytes(const Manifest& manifest, const pf_engine_options& options) noexcept {
  if (!manifest.head) return 0;
  const HeadEntry& head = *manifest.head;
  const uint64_t width = manifest.target.hidden_size;
  return rows_bytes(head, width, max_drafted_rows(options), max_together(options)) +
         HiddenRows::num_bytes(head.taps.size(), width, max_hidden_rows(manifest, options));
}

uint64_t head_cache_bytes(const Manifest& manifest, const pf_engine_options& options, uint64_t num_tokens) noexcept {
  if (!manifest.head || !manifest.head->has_layer()) return 0;
  const HeadCacheEntry& cache = *manifest.head->cache;
  return num_tokens * 2 * cache_row_bytes(cache.type, cache.head_dim) * cache.num_kv_heads +
         options.num_sequences * EagleRows::state_bytes(*manifest.head, manifest.target.hidden_size);
}

std::unique_ptr<HeadDrafter> make_head_drafter(const Head& head, int32_t width, int32_t num_ids,
                                               const ModelLimits& limits) {
  const auto last_row = [&](std::unique_ptr<LastRows> rows) {
    return std::make_unique<LastRowDrafter>(head, width, num_ids, limits.max_seqs, std::move(rows));
  };
  switch (head.entry().kind.graphs) {
    case HeadGraphs::kHeads:
      return last_row(std::make_unique<MedusaRows>(head, width, num_ids, limits.max_seqs));
    case HeadGraphs::kStages:
      return last_row(std::make_unique<MlpRows>(head, width, num_ids, limits));
    case HeadGraphs::kLayer:
      break;
  }
  return std::make_unique<EagleDrafter>(head, width, num_ids, limits);
}

}  // namespace pilotfish
