#include "model/likely_rows.h"

namespace pilotfish {

LikelyRows::LikelyRows(std::shared_ptr<CudaDevice> device, int32_t num_logits, int32_t num_choices)
    : device_(std::move(device)),
      num_logits_(num_logits),
      num_choices_(num_choices),
      rows_(device_, sizeof(LikelyRow) * kMaxRoundRows),
      parts_(device_, sizeof(LikelyRow) * kMaxRoundRows * num_row_parts(num_choices)),
      arrivals_(device_, sizeof(int32_t)),
      host_rows_(static_cast<LikelyRow*>(device_->allocate_host(sizeof(LikelyRow) * kMaxRoundRows))) {
  device_->fill(arrivals_.data(), 0, sizeof(int32_t), sizeof(int32_t), 1);
}

LikelyRows::~LikelyRows() { device_->release_host(host_rows_); }

LikelyMemory LikelyRows::memory() const noexcept {
  return {.rows = reinterpret_cast<LikelyRow*>(rows_.data()),
          .parts = reinterpret_cast<LikelyRow*>(parts_.data()),
          .arrivals = reinterpret_cast<int32_t*>(arrivals_.data())};
}

std::span<const LikelyRow> LikelyRows::find(const float* logits, int32_t num_rows) {
  device_->find_likeliest(
      {.logits = logits, .num_rows = num_rows, .num_logits = num_logits_, .num_choices = num_choices_}, memory());
  device_->download(host_rows_, memory().rows, sizeof(LikelyRow) * num_rows);
  device_->synchronize();
  return {host_rows_, size_t(num_rows)};
}

}  // namespace pilotfish
