#include "engine/load_progress.h"

#include "base/status.h"

namespace pilotfish {
namespace {

constexpr std::chrono::milliseconds kTellingStep{100};

}  // namespace

LoadProgress::LoadProgress(const pf_engine_options& options)
    : callback_(options.progress), user_(options.progress_user) {}

void LoadProgress::expect(const Manifest& manifest) noexcept {
  num_bytes_ = manifest.target.weights.num_bytes + (manifest.draft ? manifest.draft->weights.num_bytes : 0) +
               (manifest.head ? manifest.head->weights.num_bytes : 0);
}

void LoadProgress::tell(pf_load_stage stage) {
  if (!callback_) return;
  const int32_t answer = callback_(user_, stage, num_read_.load(std::memory_order_relaxed), num_bytes_);
  if (answer != 0) fail(PF_CALLBACK_FAILED, "the progress callback returned ", answer, ", which ends the load");
  last_told_ = Clock::now();
}

void LoadProgress::tell_now_and_then(pf_load_stage stage) {
  if (Clock::now() - last_told_ >= kTellingStep) tell(stage);
}

}  // namespace pilotfish
