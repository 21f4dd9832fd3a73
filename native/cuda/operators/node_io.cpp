#include "cuda_operator.h"

namespace pilotfish::cuda {

const float* NodeInfo::device_floats(size_t index, size_t count) const {
  if (index >= num_inputs() || input_name(index).empty()) return nullptr;
  return static_cast<const float*>(constant(index, count * sizeof(float), sizeof(float)));
}

const void* NodeInfo::constant(size_t index, size_t num_bytes, size_t element_bytes) const {
  int is_constant = 0;
  const OrtValue* value = nullptr;
  throw_on_error(api_, ort_abi::KernelInfoGetConstantInput_tensor(api_, info_, index, &is_constant, &value));
  require(is_constant != 0 && value != nullptr, "input " + std::to_string(index) + " is not a constant of the graph");
  OrtTensorTypeAndShapeInfo* shape = nullptr;
  throw_on_error(api_, ort_abi::GetTensorTypeAndShape(api_, value, &shape));
  size_t count = 0;
  OrtStatus* const status = ort_abi::GetTensorShapeElementCount(api_, shape, &count);
  ort_abi::ReleaseTensorTypeAndShapeInfo(api_, shape);
  throw_on_error(api_, status);
  require(count * element_bytes == num_bytes, "input " + std::to_string(index) + " has " +
                                                  std::to_string(count * element_bytes) + " bytes, not " +
                                                  std::to_string(num_bytes));
  void* data = nullptr;
  throw_on_error(api_, ort_abi::GetTensorMutableData(api_, const_cast<OrtValue*>(value), &data));
  return data;
}

NodeIo::NodeIo(const OrtApi* api, OrtKernelContext* context) : api_(api), context_(context) {
  throw_on_error(api_, ort_abi::KernelContext_GetInputCount(api_, context_, &num_inputs_));
}

Tensor NodeIo::input(size_t index) const {
  Tensor tensor;
  if (index >= num_inputs_) return tensor;
  const OrtValue* value = nullptr;
  throw_on_error(api_, ort_abi::KernelContext_GetInput(api_, context_, index, &value));
  if (value == nullptr) return tensor;
  // The cache inputs are written in place: that is the operator's contract with its caller.
  throw_on_error(api_, ort_abi::GetTensorMutableData(api_, const_cast<OrtValue*>(value), &tensor.data));
  OrtTensorTypeAndShapeInfo* info = nullptr;
  throw_on_error(api_, ort_abi::GetTensorTypeAndShape(api_, value, &info));
  OrtStatus* status = ort_abi::GetTensorElementType(api_, info, &tensor.type);
  if (status == nullptr) status = ort_abi::GetDimensionsCount(api_, info, &tensor.rank);
  const bool fits = status == nullptr && tensor.rank <= Tensor::kMaxRank;
  if (fits) status = ort_abi::GetDimensions(api_, info, tensor.dims.data(), tensor.rank);
  ort_abi::ReleaseTensorTypeAndShapeInfo(api_, info);
  throw_on_error(api_, status);
  require(fits, "input " + std::to_string(index) + " has more than 4 axes");
  // An empty tensor may have no memory; it still exists.
  static std::byte nothing;
  if (tensor.data == nullptr) tensor.data = &nothing;
  return tensor;
}

float* NodeIo::output(size_t index, std::initializer_list<int64_t> dims) const {
  OrtValue* value = nullptr;
  throw_on_error(api_, ort_abi::KernelContext_GetOutput(api_, context_, index, dims.begin(), dims.size(), &value));
  void* data = nullptr;
  throw_on_error(api_, ort_abi::GetTensorMutableData(api_, value, &data));
  return static_cast<float*>(data);
}

cudaStream_t NodeIo::stream() const {
  void* stream = nullptr;
  throw_on_error(api_, ort_abi::KernelContext_GetGPUComputeStream(api_, context_, &stream));
  return static_cast<cudaStream_t>(stream);
}

}  // namespace pilotfish::cuda
