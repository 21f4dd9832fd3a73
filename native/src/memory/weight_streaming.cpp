#include "memory/weight_streaming.h"

#include <algorithm>

#include "device/weight_stream.h"
#include "memory/cuda_memory_plan.h"

namespace pilotfish {
namespace {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr uint64_t kAligned = 4096;  // where tensors of a file begin

uint64_t rounded(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

uint64_t streamed_bytes(const ModelEntry& model, const TensorEntry& tensor, StreamedFrom from) {
  return from == StreamedFrom::kHost ? cuda_repacked_bytes(model, tensor) : rounded(tensor.num_bytes, kAligned);
}

uint64_t resident_bytes(const ModelEntry& model, const StreamedChoice& choice, StreamedFrom from) {
  if (from == StreamedFrom::kHost) {
    return cuda_weight_bytes(model, choice.streamed_bytes) + cuda_slot_bytes(choice.slot_bytes);
  }
  const uint64_t file_bytes = rounded(model.weights.num_bytes, kAligned);
  return host_weight_bytes(file_bytes - std::min(file_bytes, choice.streamed_bytes));
}

// `count` of the tensors, evenly spread: while resident layers run, the next streamed one comes.
StreamedChoice spread(const ModelEntry& model, const std::vector<const TensorEntry*>& tensors, uint64_t count,
                      StreamedFrom from) {
  StreamedChoice choice;
  for (uint64_t i = 0; i < tensors.size(); ++i) {
    if ((i + 1) * count / tensors.size() == i * count / tensors.size()) continue;
    const uint64_t num_bytes = streamed_bytes(model, *tensors[i], from);
    choice.tensors.push_back(tensors[i]);
    choice.streamed_bytes += num_bytes;
    if (from == StreamedFrom::kHost) choice.slot_bytes = std::max(choice.slot_bytes, num_bytes);
  }
  choice.resident_bytes = resident_bytes(model, choice, from);
  return choice;
}

// Where every other tensor is one of the larger ones, an even choice has far more bytes than are needed.
void keep_what_fits(const ModelEntry& model, uint64_t most_resident_bytes, StreamedChoice& choice) {
  std::erase_if(choice.tensors, [&](const TensorEntry* tensor) {
    StreamedChoice without;
    without.streamed_bytes = choice.streamed_bytes - streamed_bytes(model, *tensor, StreamedFrom::kFile);
    without.resident_bytes = resident_bytes(model, without, StreamedFrom::kFile);
    if (without.resident_bytes > most_resident_bytes) return false;
    choice.streamed_bytes = without.streamed_bytes;
    choice.resident_bytes = without.resident_bytes;
    return true;
  });
}

}  // namespace

uint64_t host_weight_bytes(uint64_t file_bytes) { return rounded(file_bytes, kHugePageBytes); }

std::vector<const TensorEntry*> streamable(const ModelEntry& model, StreamedFrom from) {
  std::vector<const TensorEntry*> tensors;
  for (const TensorEntry& tensor : model.tensors) {
    if (tensor.type != TensorEntry::Type::kU8) continue;
    if (from == StreamedFrom::kFile || tensor.name.starts_with("layers.")) tensors.push_back(&tensor);
  }
  return tensors;
}

StreamedChoice stream_all(const ModelEntry& model, StreamedFrom from) {
  const std::vector<const TensorEntry*> tensors = streamable(model, from);
  return spread(model, tensors, tensors.size(), from);
}

StreamedChoice choose_streamed(const ModelEntry& model, uint64_t most_resident_bytes, StreamedFrom from) {
  const std::vector<const TensorEntry*> tensors = streamable(model, from);
  for (uint64_t count = 1; count < tensors.size(); ++count) {
    StreamedChoice choice = spread(model, tensors, count, from);
    if (choice.resident_bytes > most_resident_bytes) continue;
    if (from == StreamedFrom::kFile) keep_what_fits(model, most_resident_bytes, choice);
    return choice;
  }
  return spread(model, tensors, tensors.size(), from);
}

}  // namespace pilotfish
