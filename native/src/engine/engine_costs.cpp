// The engine's view of what passes cost: kept, measured or guessed.

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/pass_limits.h"
#include "base/platform/text.h"
#include "base/sha256.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/load_progress.h"
#include "engine/options.h"
#include "plan/calibration.h"

namespace pilotfish {
namespace {

std::string describe(const std::shared_ptr<CudaDevice>& device) {
  if (!device) return "cpu";
  const CudaDeviceInfo info = device->info();
  return info.name + " of CUDA " + std::to_string(info.driver_version);
}

std::string key_of(const Manifest& manifest, const pf_engine_options& options, const std::string& device,
                   const pf_engine_info& plan) {
  std::ifstream file(manifest.folder / "manifest.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Sha256 hash;
  hash.update(text.data(), text.size());
  std::ostringstream key;
  key << describe_build_and_machine() << "; bundle " << hash.finish() << "; device " << device << "; "
      << options.num_threads << " threads; " << options.max_draft_tokens << " drafted; " << max_verified_rows(options)
      << " verified; " << max_together(options) << " together; chunks of " << options.prefill_chunk << "; context "
      << plan.max_context;
  if (plan.target_streamed_bytes > 0) key << "; " << plan.target_streamed_bytes << " streamed";
  return key.str();
}

}  // namespace

RoundCosts Engine::find_costs(const Manifest& manifest, LoadProgress& progress) {
  if (options_.calibration == PF_CALIBRATION_OFF || options_.max_draft_tokens == 0) {
    RoundCosts costs = RoundCosts::guess(manifest.target.pass_weight_bytes(),
                                         manifest.draft ? manifest.draft->pass_weight_bytes() : 0);
    if (head_drafter_) {
      costs.head = DraftCosts::guess(manifest.head->pass_weight_bytes());
      costs.head->begin_levels = head_drafter_->begin_levels();
      const bool has_levels = head_drafter_->begin_levels() < head_drafter_->max_depth();
      if (!has_levels) costs.head->level = {.rows = {1}, .contexts = {0, 0}, .seconds = {{{0}, {0}}}};
    }
    return costs;
  }
  const CalibrationFile file{platform::path_of_text(options_.calibration_folder ? options_.calibration_folder : ""),
                             key_of(manifest, options_, describe(device_), plan_)};
  if (options_.calibration == PF_CALIBRATION_KEPT) {
    std::optional<RoundCosts> kept = read_costs(file);
    const auto has = [](const auto& source) { return static_cast<bool>(source); };
    if (kept && has(kept->draft) == has(manifest.draft) && has(kept->head) == has(manifest.head)) return *kept;
  }
  progress.tell(PF_LOAD_MEASURING);
  RoundCosts costs = measure();
  keep_costs(file, costs);
  return costs;
}

void Engine::rehearse_rounds() {
  const std::lock_guard lock(mutex_);
  constexpr int32_t kTokens = 2;
  int32_t max_context = std::min(plan_.max_context, target_->max_positions());
  if (draft_) max_context = std::min(max_context, draft_->max_positions());
  const int32_t max_drafted = std::min(options_.max_draft_tokens, max_context - kTokens);
  if (max_drafted < 0) return;
  OpenSequence sequence(*this, kTokens + max_drafted);
  const Reservation room(sequence, kTokens + max_drafted);
  fill_caches(sequence);
  device_round_->rehearse(sequence.block_table(), max_drafted, head_drafter_ != nullptr);
}

void Engine::fill_caches(const Sequence& sequence) {
  for (const int32_t block_id : sequence.block_table()) {
    target_->cache().fill(block_id);
    if (draft_) draft_->cache().fill(block_id);
    if (KvCache* const cache = head_cache()) cache->fill(block_id);
  }
}

double Engine::cost(int32_t which, int32_t num_rows, int32_t context) const {
  if (num_rows < 1 || context < 0) {
    fail(PF_INVALID_ARGUMENT, "num_rows is ", num_rows, " and context ", context, ", at least 1 and 0 are needed");
  }
  if (which == PF_MODEL_TARGET) return costs_.verify.at(num_rows, context);
  if (which == PF_MODEL_HEAD) {
    if (!costs_.head) fail(PF_INVALID_ARGUMENT, "the bundle has no head");
    return costs_.head->begin.at(num_rows, context);
  }
  if (which != PF_MODEL_DRAFT) fail(PF_INVALID_ARGUMENT, "model is ", which, ", not a pf_model");
  if (!costs_.draft) fail(PF_INVALID_ARGUMENT, "the bundle has no draft model");
  return costs_.draft->begin.at(num_rows, context);
}

void Engine::remember(std::span<const int32_t> output) noexcept {
  if (store_) store_->add(output);
}

void Engine::save_lookup() {
  const std::lock_guard lock(mutex_);
  if (!store_) fail(PF_INVALID_ARGUMENT, "the engine was opened without a lookup_store");
  store_->save();
}

}  // namespace pilotfish
