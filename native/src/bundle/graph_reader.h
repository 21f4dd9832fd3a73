// A graph file (ONNX) as plain values, of which names and bytes are views into the file. Reads the messages and fields
// that the exporter writes and refuses all others: graphs inside of nodes, functions, training, sparse tensors,
// whatever comes with later versions. Knows nothing about operators and shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/protobuf.h"

namespace pilotfish {

inline constexpr size_t kMostGraphNodes = 1 << 13;
inline constexpr size_t kMostGraphRank = 8;
inline constexpr size_t kMostInlineBytes = 1 << 16;  // of all tensors together that are in the graph's file
inline constexpr uint64_t kMostDim = uint64_t{1} << 44;

// Element types of onnx.proto that a graph may have. All have at most 8 bytes an element.
enum class ElementType : int32_t {
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13
};
// Throws GraphError for others: strings, complex numbers, small floats, packed nibbles.
ElementType element_type(int64_t number);
uint64_t element_bytes(ElementType type) noexcept;

struct GraphTensor {
  std::string_view name;
  ElementType type;
  std::vector<int64_t> dims;
  std::string_view data;  // the elements, where they are in the graph's file as they are in memory
  std::vector<int64_t> integers;
  bool is_external = false;
  std::string_view location, offset, length;  // of an external one

  uint64_t num_elements() const noexcept;
};

struct GraphAttribute {
  enum class Type : int32_t { kFloat = 1, kInteger = 2, kString = 3, kTensor = 4, kFloats = 6, kIntegers = 7 };

  std::string_view name;
  Type type;
  int64_t integer = 0;
  std::string_view text;
  std::vector<int64_t> integers;
  uint64_t num_floats = 0;
  std::optional<GraphTensor> tensor;
};

struct GraphNode {
  std::string_view name, type, domain;
  std::vector<std::string_view> inputs, outputs;  // empty: left out
  std::vector<GraphAttribute> attributes;

  const GraphAttribute* find(std::string_view attribute) const noexcept;
};

// For errors: "node Add "Add.3" ".
std::string described(const GraphNode& node);

// An input or output; or what is said about a value in between, which nothing relies on.
struct GraphPort {
  struct Dim {
    int64_t size = 0;
    bool is_symbolic = false;
  };

  std::string_view name;
  ElementType type;
  std::optional<std::vector<Dim>> dims;
};

struct GraphOpset {
  std::string_view domain;
  int64_t version = 0;
};

struct GraphFile {
  int64_t ir_version = 0;
  std::vector<GraphOpset> opsets;
  std::vector<GraphNode> nodes;
  std::vector<GraphTensor> initializers;
  std::vector<GraphPort> inputs, outputs;
};

// `bytes` must outlive the result. Throws GraphError.
GraphFile read_graph_file(std::string_view bytes);

}  // namespace pilotfish
