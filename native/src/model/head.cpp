#include "model/head.h"

#include "bundle/bundle_files.h"

namespace pilotfish {

Head::Head(std::shared_ptr<const Ort> ort, const std::filesystem::path& folder, const HeadEntry& entry,
           const Model& target, int32_t num_threads)
    : ort_(std::move(ort)),
      folder_(folder),
      entry_(entry),
      num_threads_(num_threads),
      weights_(read_weights(folder, entry.weights)),
      target_(target) {
  for (const auto& [role, file] : entry_.graphs) check_file(folder_, file);
  for (const TensorEntry& tensor : entry_.tensors) {
    const auto type = tensor.type == TensorEntry::Type::kU8 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8
                                                            : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    initializers_.push_back(ort_->tensor(weights_.data() + tensor.offset, tensor.num_bytes, tensor.shape, type));
  }
}

OrtSessionPtr Head::open_session(std::string_view role) const {
  const OrtSessionOptionsPtr options = ort_->session_options(num_threads_);
  const auto add = [&](const std::string& name, const OrtValue* value) {
    ort_->check(ort_abi::AddInitializer(ort_->api(), options.get(), name.c_str(), value));
  };
  for (size_t i = 0; i < initializers_.size(); ++i) add(entry_.tensors[i].name, initializers_[i].get());
  for (const SharedTensor& tensor : entry_.shared) add(tensor.name, target_.stored(tensor.target.name));
  return ort_->create_session((folder_ / entry_.graphs.find(role)->second.file).string(), options.get());
}

}  // namespace pilotfish
