#include "cuda_operator.h"

namespace pilotfish::cuda {

const float* NodeInfo::device_floats(size_t index, size_t count) const {
  if (index >= num_inputs() || input_name(index).empty()) return nullptr;
  return static_cast<const float*>(constant(index, count * sizeof(float), sizeof(float)));
}

const void* NodeInfo::constant(size_t index, size_t num_bytes, size_t element_bytes) const {
  const Tensor tensor = KernelInfo::constant(index);
  require(tensor.exists(), "input ", index, " is not a constant of the graph");
  const size_t found = static_cast<size_t>(tensor.count()) * element_bytes;
  require(found == num_bytes, "input ", index, " has ", found, " bytes, not ", num_bytes);
  return tensor.data;
}

NodeIo::NodeIo(const OrtApi* api, OrtKernelContext* context) : api_(api), context_(context) {
  throw_on_error(api_, ort_abi::KernelContext_GetInputCount(api_, context_, &num_inputs_));
}

Tensor NodeIo::input(size_t index) const {
  if (index >= num_inputs_) return {};
  const OrtValue* value = nullptr;
  throw_on_error(api_, ort_abi::KernelContext_GetInput(api_, context_, index, &value));
  return value == nullptr ? Tensor{} : tensor_of(api_, index, value);
}

float* NodeIo::output(size_t index, std::initializer_list<int64_t> dims) const {
  return output_floats(api_, context_, index, {dims.begin(), dims.size()});
}

float* NodeIo::output_like(size_t index, const Tensor& like) const {
  return output_floats(api_, context_, index, like.shape());
}

cudaStream_t NodeIo::stream() const {
  void* stream = nullptr;
  throw_on_error(api_, ort_abi::KernelContext_GetGPUComputeStream(api_, context_, &stream));
  return static_cast<cudaStream_t>(stream);
}

}  // namespace pilotfish::cuda
