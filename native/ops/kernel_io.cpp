#include "kernel_io.h"

#include <stdexcept>
#include <string_view>
#include <thread>

namespace pilotfish {
namespace {

std::string dims_text(const int64_t* dims, size_t rank) {
  std::string text = "[";
  for (size_t axis = 0; axis < rank; ++axis) {
    text += (axis == 0 ? "" : ", ") + (dims[axis] < 0 ? std::string("any") : std::to_string(dims[axis]));
  }
  return text + "]";
}

// Takes a status of an attribute: true if there is no such attribute.
bool is_absent(const OrtApi* api, OrtStatus* status) {
  if (status == nullptr) return false;
  const std::string_view message = ort_abi::GetErrorMessage(api, status);
  const bool absent = message.find("No attribute with name") != std::string_view::npos;
  if (absent) ort_abi::ReleaseStatus(api, status);
  return absent;
}

// throw_on_error with the attribute's name before ONNX Runtime's words.
void throw_on_attribute_error(const OrtApi* api, const char* name, OrtStatus* status) {
  if (status == nullptr) return;
  const std::string message = std::string("attribute ") + name + ": " + ort_abi::GetErrorMessage(api, status);
  ort_abi::ReleaseStatus(api, status);
  throw std::invalid_argument(message);
}

int64_t num_processors() {
  static const int64_t count = std::max<int64_t>(1, std::thread::hardware_concurrency());
  return count;
}

struct ParallelContext {
  const OrtApi* api;
  const OrtKernelContext* context;
};

}  // namespace

void throw_on_error(const OrtApi* api, OrtStatus* status) {
  if (status == nullptr) return;
  const std::string message = ort_abi::GetErrorMessage(api, status);
  ort_abi::ReleaseStatus(api, status);
  throw std::runtime_error(message);
}

int64_t Tensor::count() const {
  int64_t product = 1;
  for (size_t axis = 0; axis < rank; ++axis) product *= dims[axis];
  return product;
}

std::string Tensor::shape_text() const { return dims_text(dims.data(), rank); }

void require_shape(const char* name, const Tensor& tensor, std::initializer_list<int64_t> dims) {
  bool equal = tensor.rank == dims.size();
  for (size_t axis = 0; equal && axis < tensor.rank; ++axis) {
    const int64_t wanted = dims.begin()[axis];
    equal = wanted < 0 || wanted == tensor.dims[axis];
  }
  if (equal) return;
  require(false, name, " has shape ", tensor, ", not ", dims_text(dims.begin(), dims.size()));
}

Tensor tensor_of(const OrtApi* api, size_t index, const OrtValue* value) {
  Tensor tensor;
  // The cache inputs are written in place: that is the operator's contract with its caller.
  throw_on_error(api, ort_abi::GetTensorMutableData(api, const_cast<OrtValue*>(value), &tensor.data));
  OrtTensorTypeAndShapeInfo* info = nullptr;
  throw_on_error(api, ort_abi::GetTensorTypeAndShape(api, value, &info));
  OrtStatus* status = ort_abi::GetTensorElementType(api, info, &tensor.type);
  if (status == nullptr) status = ort_abi::GetDimensionsCount(api, info, &tensor.rank);
  const bool fits = status == nullptr && tensor.rank <= Tensor::kMaxRank;
  if (fits) status = ort_abi::GetDimensions(api, info, tensor.dims.data(), tensor.rank);
  ort_abi::ReleaseTensorTypeAndShapeInfo(api, info);
  throw_on_error(api, status);
  require(fits, "input ", index, " has ", tensor.rank, " axes, at most 4 are supported");
  // An empty tensor may have no memory; it still exists.
  static std::byte nothing;
  if (tensor.data == nullptr) tensor.data = &nothing;
  return tensor;
}

float* output_floats(const OrtApi* api, OrtKernelContext* context, size_t index, std::span<const int64_t> dims) {
  OrtValue* value = nullptr;
  throw_on_error(api, ort_abi::KernelContext_GetOutput(api, context, index, dims.data(), dims.size(), &value));
  void* data = nullptr;
  throw_on_error(api, ort_abi::GetTensorMutableData(api, value, &data));
  return static_cast<float*>(data);
}

int64_t KernelInfo::integer(const char* name, int64_t least, int64_t most) const {
  int64_t value = 0;
  throw_on_attribute_error(api_, name, ort_abi::KernelInfoGetAttribute_int64(api_, info_, name, &value));
  require(value >= least && value <= most, name, " is ", value, ", not in ", least, "..", most);
  return value;
}

int64_t KernelInfo::integer_or(const char* name, int64_t least, int64_t most, int64_t value_if_absent) const {
  int64_t value = 0;
  OrtStatus* const status = ort_abi::KernelInfoGetAttribute_int64(api_, info_, name, &value);
  if (is_absent(api_, status)) return value_if_absent;
  throw_on_attribute_error(api_, name, status);
  require(value >= least && value <= most, name, " is ", value, ", not in ", least, "..", most);
  return value;
}

float KernelInfo::real(const char* name) const {
  float value = 0;
  throw_on_attribute_error(api_, name, ort_abi::KernelInfoGetAttribute_float(api_, info_, name, &value));
  return value;
}

float KernelInfo::real_or(const char* name, float value_if_absent) const {
  float value = 0;
  OrtStatus* const status = ort_abi::KernelInfoGetAttribute_float(api_, info_, name, &value);
  if (is_absent(api_, status)) return value_if_absent;
  throw_on_attribute_error(api_, name, status);
  return value;
}

std::string KernelInfo::text(const char* name) const {
  size_t num_bytes = 0;
  throw_on_attribute_error(api_, name, ort_abi::KernelInfoGetAttribute_string(api_, info_, name, nullptr, &num_bytes));
  std::string value(num_bytes, '\0');
  throw_on_attribute_error(api_, name,
                           ort_abi::KernelInfoGetAttribute_string(api_, info_, name, value.data(), &num_bytes));
  value.resize(num_bytes - 1);  // the size counts the terminating zero
  return value;
}

std::vector<int64_t> KernelInfo::integers(const char* name) const {
  size_t count = 0;
  throw_on_attribute_error(api_, name, ort_abi::KernelInfoGetAttributeArray_int64(api_, info_, name, nullptr, &count));
  std::vector<int64_t> values(count);
  throw_on_attribute_error(api_, name,
                           ort_abi::KernelInfoGetAttributeArray_int64(api_, info_, name, values.data(), &count));
  return values;
}

size_t KernelInfo::num_outputs() const {
  size_t count = 0;
  throw_on_error(api_, ort_abi::KernelInfo_GetOutputCount(api_, info_, &count));
  return count;
}

size_t KernelInfo::num_inputs() const {
  size_t count = 0;
  throw_on_error(api_, ort_abi::KernelInfo_GetInputCount(api_, info_, &count));
  return count;
}

Tensor KernelInfo::constant(size_t index) const {
  int is_constant = 0;
  const OrtValue* value = nullptr;
  throw_on_error(api_, ort_abi::KernelInfoGetConstantInput_tensor(api_, info_, index, &is_constant, &value));
  return is_constant == 0 || value == nullptr ? Tensor{} : tensor_of(api_, index, value);
}

KernelContext::KernelContext(const OrtApi* api, OrtKernelContext* context, std::span<const Tensor> constants,
                             Workers* workers)
    : api_(api), context_(context), constants_(constants), workers_(workers) {
  throw_on_error(api_, ort_abi::KernelContext_GetInputCount(api_, context_, &num_inputs_));
}

Tensor KernelContext::input(size_t index) const {
  if (index >= num_inputs_) return {};
  if (constants_[index].exists()) return constants_[index];
  const OrtValue* value = nullptr;
  throw_on_error(api_, ort_abi::KernelContext_GetInput(api_, context_, index, &value));
  return value == nullptr ? Tensor{} : tensor_of(api_, index, value);
}

float* KernelContext::output(size_t index, std::initializer_list<int64_t> dims) const {
  return output_floats(api_, context_, index, {dims.begin(), dims.size()});
}

float* KernelContext::output_like(size_t index, const Tensor& like) const {
  return output_floats(api_, context_, index, like.shape());
}

Parallel KernelContext::parallel() const {
  if (workers_ != nullptr) return workers_->parallel();
  const Parallel::Launcher launcher = [](void* context, Parallel::Body body, size_t num_workers, void* argument,
                                         WeightSpan) {
    const ParallelContext& ort = *static_cast<ParallelContext*>(context);
    throw_on_error(ort.api, ort_abi::KernelContext_ParallelFor(ort.api, ort.context, body, num_workers, 0, argument));
  };
  thread_local ParallelContext context;
  context = {api_, context_};
  return Parallel(launcher, &context, num_processors());
}

}  // namespace pilotfish
