// The inputs and outputs that a graph really has, for whoever binds memory of the sizes that a manifest names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/ort.h"

namespace pilotfish {

enum class PortKind { kInput, kOutput };

class GraphPorts {
 public:
  // A size that differs from pass to pass.
  static constexpr int64_t kOpen = -1;

  // Of a session of the graph in `file`, which messages name.
  GraphPorts(const Ort& ort, const OrtSession* session, std::string file);

  // Throws PF_BUNDLE_CORRUPT unless the graph has a port of this name, type and shape.
  void require(PortKind kind, const std::string& name, ONNXTensorElementDataType type,
               std::span<const int64_t> shape) const;
  // Throws PF_BUNDLE_CORRUPT if the graph has a port of this name, which nothing would be bound to.
  void forbid(PortKind kind, const std::string& name) const;

 private:
  struct Port {
    PortKind kind;
    std::string name;
    ONNXTensorElementDataType type;
    std::vector<int64_t> shape;
  };

  std::vector<Port>::const_iterator find(PortKind kind, const std::string& name) const;

  // Functions of ONNX Runtime that say the same of inputs, outputs and inputs with a default.
  template <typename Count, typename Name, typename TypeInfo>
  void read(const Ort& ort, const OrtSession* session, PortKind kind, Count count, Name name, TypeInfo type_info);

  std::string file_;
  std::vector<Port> ports_;
};

}  // namespace pilotfish
