// Which of a model's weights stay in host memory where a GPU has no room for all, and what the rest takes. The planner
// and the loader share it.
#pragma once

#include <cstdint>
#include <vector>

#include "bundle/manifest.h"

namespace pilotfish {

struct StreamedChoice {
  std::vector<const TensorEntry*> tensors;  // of the model
  uint64_t host_bytes = 0;                  // of these, repacked, at most
  uint64_t slot_bytes = 0;                  // of the largest
  uint64_t device_bytes = 0;                // of the model on the device: other weights, f32 tensors, the slots
};

// Packed weights that may be streamed: those of layers. Embeddings and output layers stay on the device.
std::vector<const TensorEntry*> streamable(const ModelEntry& model);
// All of them: the least that the model takes on the device, but for models whose slots are larger than what they save.
StreamedChoice stream_all(const ModelEntry& model);
// As few of them as bring the model to at most so many bytes on the device, spread over its layers; all where that is
// too few. Asked again with the device_bytes of a choice, the answer is that choice.
StreamedChoice choose_streamed(const ModelEntry& model, uint64_t most_device_bytes);

}  // namespace pilotfish
