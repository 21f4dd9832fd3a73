#include "controller.h"

#include <algorithm>

namespace pilotfish {
namespace {

constexpr float kRowCost = 0.08f;   // of one more row in the target's pass, measured at 4 rows of a 135M model
constexpr float kMostCost = 0.45f;  // a draft as large as its target is only of use in tests, but then it is to be used
constexpr float kMemory = 1.0f / 16;
constexpr int32_t kProbeRounds = 16;

}  // namespace

DraftController::DraftController(uint64_t draft_pass_bytes, uint64_t target_pass_bytes) noexcept
    : cost_(std::min(kRowCost + static_cast<float>(draft_pass_bytes) / static_cast<float>(target_pass_bytes),
                     kMostCost)) {}

int32_t DraftController::limit(int32_t most) noexcept {
  if (acceptance_ >= cost_ || ++rounds_without_ >= kProbeRounds) {
    rounds_without_ = 0;
    return most;
  }
  return 0;
}

void DraftController::record(bool first_accepted) noexcept {
  acceptance_ += kMemory * ((first_accepted ? 1.0f : 0.0f) - acceptance_);
}

}  // namespace pilotfish
