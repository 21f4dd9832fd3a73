// The few likeliest logits of rows, found on the device: all that a greedy draft made by the host needs of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/cuda_device.h"
#include "device/round_kernels.h"

namespace pilotfish {

class Model;

class LikelyRows {
 public:
  // Rows have num_logits, of which those from num_choices on are padding.
  LikelyRows(std::shared_ptr<CudaDevice> device, int32_t num_logits, int32_t num_choices);
  LikelyRows(LikelyRows&&) = delete;
  ~LikelyRows();

  // Of logits [num_rows, num_logits] on the device, once it has done what is enqueued. Valid until the next call.
  std::span<const LikelyRow> find(const float* logits, int32_t num_rows);

  // For rounds on the device.
  LikelyMemory memory() const noexcept;

 private:
  const std::shared_ptr<CudaDevice> device_;
  const int32_t num_logits_;
  const int32_t num_choices_;
  CudaMemory rows_, parts_, arrivals_;
  LikelyRow* host_rows_;  // page-locked
};

// A model that drafts in rounds on a device, and what finds the likeliest of its tokens; nullptr: there is none.
struct RoundModel {
  Model* model = nullptr;
  LikelyRows* likely = nullptr;
};

}  // namespace pilotfish
