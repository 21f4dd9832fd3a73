#include "draft/make_head_drafter.h"

#include <algorithm>

#include "base/pass_limits.h"
#include "draft/eagle_drafter.h"
#include "draft/last_row_drafter.h"

namespace pilotfish {

int32_t max_hidden_rows(const Manifest& manifest, const pf_engine_options& options) noexcept {
  if (!manifest.head) return 0;
  const int32_t num_verified = max_verified_rows(options);
  return manifest.head->has_layer() ? std::max(options.prefill_chunk, num_verified) : num_verified;
}

uint64_t head_buffer_bytes(const Manifest& manifest, const pf_engine_options& options) noexcept {
  if (!manifest.head) return 0;
  const HeadEntry& head = *manifest.head;
  const uint64_t width = manifest.target.hidden_size;
  const uint64_t num_outputs = max_drafted_rows(options);
  const uint64_t rows = head.has_layer() ? EagleRows::num_bytes(head, width, num_outputs, max_together_on_host(options))
                        : head.kind == HeadKind::kMedusa ? MedusaRows::num_bytes(head, width)
                                                         : MlpRows::num_bytes(head, width, num_outputs);
  return rows + HiddenRows::num_bytes(head.taps.size(), width, max_hidden_rows(manifest, options));
}

uint64_t head_cache_bytes(const Manifest& manifest, const pf_engine_options& options, uint64_t num_tokens) noexcept {
  if (!manifest.head || !manifest.head->has_layer()) return 0;
  const HeadCacheEntry& cache = *manifest.head->cache;
  return num_tokens * 2 * cache_row_bytes(cache.type, cache.head_dim) * cache.num_kv_heads +
         options.num_sequences * EagleRows::state_bytes(*manifest.head, manifest.target.hidden_size);
}

std::unique_ptr<HeadDrafter> make_head_drafter(const Head& head, int32_t width, int32_t num_ids,
                                               const ModelLimits& limits) {
  if (head.entry().has_layer()) return std::make_unique<EagleDrafter>(head, width, num_ids, limits);
  if (head.entry().kind == HeadKind::kMedusa) return std::make_unique<MedusaDrafter>(head, width, num_ids);
  return std::make_unique<MlpDrafter>(head, width, num_ids, limits.max_outputs);
}

}  // namespace pilotfish
