// The few likeliest logits of a model's rows, found on the device: all that a greedy draft made by the host needs of
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/cuda_device.h"
#include "device/round_kernels.h"
#include "model/model.h"

namespace pilotfish {

class LikelyRows {
 public:
  // The model must outlive it. Logits from num_choices on are padding.
  LikelyRows(std::shared_ptr<CudaDevice> device, Model& model, int32_t num_choices);
  LikelyRows(LikelyRows&&) = delete;
  ~LikelyRows();

  // Model::forward() whose logits stay on the device: a row for each output, valid until the next pass.
  std::span<const LikelyRow> forward(const Pass& pass);

  // For rounds on the device.
  LikelyMemory memory() const noexcept;

 private:
  const std::shared_ptr<CudaDevice> device_;
  Model& model_;
  const int32_t num_choices_;
  CudaMemory rows_, parts_, arrivals_;
  LikelyRow* host_rows_;  // page-locked
};

}  // namespace pilotfish
