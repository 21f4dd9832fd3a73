// The logits that graphs of a head write, for whoever drafts: from a device the few likeliest of each row where they
// are enough, or a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "draft/drafter.h"
#include "memory/float_rows.h"
#include "model/likely_rows.h"
#include "model/model.h"

namespace pilotfish {

class RowLogits {
 public:
  // Ids from num_choices on are padding; most_read rows are read at once. `device` is nullptr on the CPU.
  RowLogits(std::shared_ptr<CudaDevice> device, int32_t max_rows, int32_t most_read, int32_t num_logits,
            int32_t num_choices);

  // [max_rows, num_logits], for the graphs to write.
  const FloatRows& rows() const noexcept { return rows_; }
  // Of num_rows rows from `first` on, once they have been written. Valid until the next call.
  Logits read(const DraftRequest& request, int32_t num_rows, int32_t first = 0);
  // The same of a greedy draft.
  Logits read_likeliest(int32_t num_rows, int32_t first = 0);
  // Whether a device finds the likeliest.
  bool finds_likeliest() const noexcept { return likely_.has_value(); }

 private:
  FloatRows rows_;
  std::optional<LikelyRows> likely_;  // on a device
  std::vector<float> copy_;           // of a device's rows
};

}  // namespace pilotfish
