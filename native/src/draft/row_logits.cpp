#include "draft/row_logits.h"

namespace pilotfish {

RowLogits::RowLogits(std::shared_ptr<CudaDevice> device, int32_t max_rows, int32_t most_read, int32_t num_logits,
                     int32_t num_choices)
    : rows_(device, max_rows, num_logits) {
  if (!device) return;
  likely_.emplace(device, num_logits, num_choices);
  copy_.resize(size_t(most_read) * num_logits);
}

Logits RowLogits::read(const DraftRequest& request, int32_t num_rows, int32_t first) {
  if (!likely_ || request.needs_likeliest_only()) return read_likeliest(num_rows, first);
  rows_.read(first, num_rows, copy_.data());
  return {.data = copy_.data(), .num_rows = num_rows, .width = rows_.num_columns()};
}

Logits RowLogits::read_likeliest(int32_t num_rows, int32_t first) {
  if (!likely_) return {.data = rows_.row(first), .num_rows = num_rows, .width = rows_.num_columns()};
  return {.data = nullptr,
          .num_rows = num_rows,
          .width = rows_.num_columns(),
          .likeliest = likely_->find(rows_.row(first), num_rows)};
}

}  // namespace pilotfish
