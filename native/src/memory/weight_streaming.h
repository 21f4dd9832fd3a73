// Which of a target's weights are brought to every pass, where an engine's memory has no room for all, and what the
// rest takes. The planner and the loader share it.
#pragma once

#include <cstdint>
#include <vector>

#include "bundle/manifest.h"

namespace pilotfish {

// Where these weights are: in page-locked host memory, and streamed to a GPU; or in the bundle's file, which is mapped.
enum class StreamedFrom { kHost, kFile };

struct StreamedChoice {
  std::vector<const TensorEntry*> tensors;  // of the model
  uint64_t streamed_bytes = 0;              // of these, at most
  uint64_t slot_bytes = 0;                  // of the largest, on a GPU
  uint64_t resident_bytes = 0;              // what the model still takes; on a GPU with the slots
};

// Of a weights file in host memory, which is in whole huge pages.
uint64_t host_weight_bytes(uint64_t file_bytes);
// Packed weights that may be streamed. Embeddings and output layers stay on a GPU.
std::vector<const TensorEntry*> streamable(const ModelEntry& model, StreamedFrom from);
// All of them: the least that the model takes, but for models whose slots are larger than what they save.
StreamedChoice stream_all(const ModelEntry& model, StreamedFrom from);
// As few of them as bring the model to at most so many bytes, spread over its layers; all where that is too few. Asked
// again with the resident_bytes of a choice, the answer is that choice.
StreamedChoice choose_streamed(const ModelEntry& model, uint64_t most_resident_bytes, StreamedFrom from);

}  // namespace pilotfish
