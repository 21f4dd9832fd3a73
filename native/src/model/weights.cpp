#include "model/weights.h"

#include "bundle/bundle_files.h"

namespace pilotfish {

Weights::Weights(const Ort& ort, std::shared_ptr<CudaDevice> device, const File& file, const Weights* lender)
    : device_(std::move(device)), data_(read_weights(file.folder, file.entry)) {
  if (device_) repacked_ = device_->create_weights(file.repacked_bytes, lender ? lender->repacked_.get() : nullptr);
  for (const TensorEntry& entry : file.tensors) tensors_.emplace(entry.name, tensor(ort, entry));
}

OrtValuePtr Weights::tensor(const Ort& ort, const TensorEntry& entry) {
  std::byte* const data = data_->data() + entry.offset;
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
  data_.reset();
}

}  // namespace pilotfish
