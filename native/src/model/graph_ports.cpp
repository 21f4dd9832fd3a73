#include "model/graph_ports.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"

namespace pilotfish {
namespace {

std::string text_of(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    text += (axis == 0 ? "" : ", ") + (shape[axis] < 0 ? std::string("any") : std::to_string(shape[axis]));
  }
  return text + "]";
}

const char* noun_of(PortKind kind) noexcept { return kind == PortKind::kInput ? ": input " : ": output "; }

std::string take_name(const Ort& ort, OrtAllocator* allocator, char* name) {
  const std::string text(name);
  ort.check(ort_abi::AllocatorFree(ort.api(), allocator, name));
  return text;
}

}  // namespace

template <typename Count, typename Name, typename TypeInfo>
void GraphPorts::read(const Ort& ort, const OrtSession* session, PortKind kind, Count count, Name name,
                      TypeInfo type_info) {
  OrtAllocator* allocator = nullptr;
  ort.check(ort_abi::GetAllocatorWithDefaultOptions(ort.api(), &allocator));
  size_t num_ports = 0;
  ort.check(count(ort.api(), session, &num_ports));
  for (size_t index = 0; index < num_ports; ++index) {
    char* chars = nullptr;
    ort.check(name(ort.api(), session, index, allocator, &chars));
    Port port{kind, take_name(ort, allocator, chars), ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED, {}};
    OrtTypeInfo* info = nullptr;
    ort.check(type_info(ort.api(), session, index, &info));
    const std::unique_ptr<OrtTypeInfo, OrtRelease<ort_abi::ReleaseTypeInfo>> owner(info, {ort.api()});
    const OrtTensorTypeAndShapeInfo* tensor = nullptr;  // stays so where the port is no tensor
    ort.check(ort_abi::CastTypeInfoToTensorInfo(ort.api(), info, &tensor));
    if (tensor) {
      size_t rank = 0;
      ort.check(ort_abi::GetTensorElementType(ort.api(), tensor, &port.type));
      ort.check(ort_abi::GetDimensionsCount(ort.api(), tensor, &rank));
      port.shape.resize(rank);
      ort.check(ort_abi::GetDimensions(ort.api(), tensor, port.shape.data(), rank));
    }
    ports_.push_back(std::move(port));
  }
}

GraphPorts::GraphPorts(const Ort& ort, const OrtSession* session, std::string file) : file_(std::move(file)) {
  read(ort, session, PortKind::kInput, ort_abi::SessionGetInputCount, ort_abi::SessionGetInputName,
       ort_abi::SessionGetInputTypeInfo);
  read(ort, session, PortKind::kInput, ort_abi::SessionGetOverridableInitializerCount,
       ort_abi::SessionGetOverridableInitializerName, ort_abi::SessionGetOverridableInitializerTypeInfo);
  read(ort, session, PortKind::kOutput, ort_abi::SessionGetOutputCount, ort_abi::SessionGetOutputName,
       ort_abi::SessionGetOutputTypeInfo);
}

std::vector<GraphPorts::Port>::const_iterator GraphPorts::find(PortKind kind, const std::string& name) const {
  return std::ranges::find_if(ports_, [&](const Port& port) { return port.kind == kind && port.name == name; });
}

void GraphPorts::forbid(PortKind kind, const std::string& name) const {
  if (find(kind, name) == ports_.end()) return;
  fail(PF_BUNDLE_CORRUPT, file_, noun_of(kind), name, ": the graph has it, the manifest says that there is none");
}

void GraphPorts::require(PortKind kind, const std::string& name, ONNXTensorElementDataType type,
                         std::span<const int64_t> shape) const {
  const char* const noun = noun_of(kind);
  const auto found = find(kind, name);
  if (found == ports_.end()) fail(PF_BUNDLE_CORRUPT, file_, noun, name, ": expected by the manifest, found none");
  if (found->type != type) {
    fail(PF_BUNDLE_CORRUPT, file_, noun, name, ": expected ONNX's element type ", type, ", found ", found->type);
  }
  if (!std::ranges::equal(found->shape, shape)) {
    fail(PF_BUNDLE_CORRUPT, file_, noun, name, ": expected by the manifest shape ", text_of(shape), ", found ",
         text_of(found->shape));
  }
}

}  // namespace pilotfish
