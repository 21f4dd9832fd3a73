#include "model/weights.h"

namespace pilotfish {

Weights::Weights(const Ort& ort, std::shared_ptr<CudaDevice> device, Content content, const Weights* lender)
    : device_(std::move(device)), file_(std::move(content.file)) {
  const auto at = [this](const TensorEntry& entry) {
    return file_ ? file_->at(entry) : bytes_->at({entry.offset, entry.num_bytes});
  };
  if (device_) {
    wait();
    CudaWeightRoom room{
        .resident_bytes = content.repacked_bytes, .streamed = {}, .slot_bytes = content.streamed.slot_bytes};
    for (const TensorEntry* entry : content.streamed.tensors) room.streamed.push_back(at(*entry));
    repacked_ = device_->create_weights(room, lender ? lender->repacked_.get() : nullptr);
  }
  for (const TensorEntry& entry : content.tensors) {
    tensors_.emplace(entry.name, tensor(ort, entry, at(entry)));
  }
}

void Weights::wait() {
  if (!file_) return;
  file_->wait();
  bytes_ = file_->take();
  file_.reset();
}

OrtValuePtr Weights::tensor(const Ort& ort, const TensorEntry& entry, std::byte* data) {
  if (entry.type == TensorEntry::Type::kU8) {
    return ort.tensor(data, entry.num_bytes, entry.shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8);
  }
  if (!device_) return ort.tensor(data, entry.num_bytes, entry.shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  std::byte* const copy = device_tensors_.emplace_back(device_, entry.num_bytes).data();
  device_->upload(copy, data, entry.num_bytes);
  return ort.cuda_tensor(device_->index(), copy, entry.num_bytes, entry.shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
}

void Weights::end_load() {
  if (!device_) return;
  device_->synchronize();
  repacked_->end_load();
  bytes_.reset();
}

}  // namespace pilotfish
