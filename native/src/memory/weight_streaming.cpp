#include "memory/weight_streaming.h"

#include <algorithm>

#include "device/weight_stream.h"
#include "memory/cuda_memory_plan.h"

namespace pilotfish {
namespace {

// `count` of the tensors, evenly spread: while resident layers run, the next streamed one comes.
StreamedChoice spread(const ModelEntry& model, const std::vector<const TensorEntry*>& tensors, uint64_t count) {
  StreamedChoice choice;
  for (uint64_t i = 0; i < tensors.size(); ++i) {
    if ((i + 1) * count / tensors.size() == i * count / tensors.size()) continue;
    const uint64_t num_bytes = cuda_repacked_bytes(model, *tensors[i]);
    choice.tensors.push_back(tensors[i]);
    choice.host_bytes += num_bytes;
    choice.slot_bytes = std::max(choice.slot_bytes, num_bytes);
  }
  choice.device_bytes = cuda_weight_bytes(model, choice.host_bytes) + cuda_slot_bytes(choice.slot_bytes);
  return choice;
}

}  // namespace

std::vector<const TensorEntry*> streamable(const ModelEntry& model) {
  std::vector<const TensorEntry*> tensors;
  for (const TensorEntry& tensor : model.tensors) {
    if (tensor.type == TensorEntry::Type::kU8 && tensor.name.starts_with("layers.")) tensors.push_back(&tensor);
  }
  return tensors;
}

StreamedChoice stream_all(const ModelEntry& model) {
  const std::vector<const TensorEntry*> tensors = streamable(model);
  return spread(model, tensors, tensors.size());
}

StreamedChoice choose_streamed(const ModelEntry& model, uint64_t most_device_bytes) {
  const std::vector<const TensorEntry*> tensors = streamable(model);
  for (uint64_t count = 1; count < tensors.size(); ++count) {
    StreamedChoice choice = spread(model, tensors, count);
    if (choice.device_bytes <= most_device_bytes) return choice;
  }
  return spread(model, tensors, tensors.size());
}

}  // namespace pilotfish
