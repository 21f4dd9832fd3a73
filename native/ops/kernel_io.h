// What an operator sees of ONNX Runtime: attributes, tensors, threads. Every failure is an exception; operator.h turns
// it into a status. The OrtApi is always that of the ONNX Runtime that calls us: a process may hold two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/ort_abi.h"
#include "parallel.h"
#include "workers.h"

namespace pilotfish {

// Throws std::runtime_error with the status's message, and releases it.
void throw_on_error(const OrtApi* api, OrtStatus* status);

// Throws std::invalid_argument unless `holds`. The parts become its text only then: operators check on every pass.
template <typename... Parts>
void require(bool holds, const Parts&... parts) {
  if (holds) return;
  std::ostringstream text;
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

// "name[index] is value" in the text of require().
struct Element {
  const char* name;
  int64_t index;
  int64_t value;

  friend std::ostream& operator<<(std::ostream& out, const Element& element) {
    return out << element.name << "[" << element.index << "] is " << element.value;
  }
};

struct Tensor {
  static constexpr size_t kMaxRank = 4;

  void* data = nullptr;  // nullptr: an optional input that was left out
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  size_t rank = 0;
  std::array<int64_t, kMaxRank> dims = {};

  bool exists() const { return data != nullptr; }
  int64_t count() const;
  std::span<const int64_t> shape() const { return {dims.data(), rank}; }
  template <typename Element>
  Element* as() const {
    return static_cast<Element*>(data);
  }
  // "[2, 3]"
  std::string shape_text() const;
  // Its shape.
  friend std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.shape_text(); }
};

// Throws unless the tensor has this shape; -1 admits any size.
void require_shape(const char* name, const Tensor& tensor, std::initializer_list<int64_t> dims);

// A node's input `index`.
Tensor tensor_of(const OrtApi* api, size_t index, const OrtValue* value);
// A node's output of that shape.
float* output_floats(const OrtApi* api, OrtKernelContext* context, size_t index, std::span<const int64_t> dims);

// An operator's node while its kernel is made.
class KernelInfo {
 public:
  KernelInfo(const OrtApi* api, const OrtKernelInfo* info) : api_(api), info_(info) {}

  const OrtApi* api() const { return api_; }
  // Attributes; absent or of another type: an error.
  int64_t integer(const char* name, int64_t least, int64_t most) const;
  int64_t integer_or(const char* name, int64_t least, int64_t most, int64_t value_if_absent) const;
  float real(const char* name) const;
  float real_or(const char* name, float value_if_absent) const;
  std::string text(const char* name) const;
  std::vector<int64_t> integers(const char* name) const;
  size_t num_inputs() const;
  size_t num_outputs() const;
  // An input that is the same in every run, or a tensor that does not exist.
  Tensor constant(size_t index) const;

 protected:
  const OrtApi* api_;
  const OrtKernelInfo* info_;
};

// An operator's node while it runs.
class KernelContext {
 public:
  // constants: of each input, see KernelInfo::constant(). workers: nullptr for ONNX Runtime's own intra-op threads.
  KernelContext(const OrtApi* api, OrtKernelContext* context, std::span<const Tensor> constants, Workers* workers);

  // Inputs past the node's last one count as left out.
  Tensor input(size_t index) const;
  float* output(size_t index, std::initializer_list<int64_t> dims) const;
  // Of another tensor's shape.
  float* output_like(size_t index, const Tensor& like) const;
  Parallel parallel() const;

 private:
  const OrtApi* api_;
  OrtKernelContext* context_;
  std::span<const Tensor> constants_;
  Workers* workers_;
  size_t num_inputs_;
};

}  // namespace pilotfish
