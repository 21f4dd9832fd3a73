#include "bundle/graph_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "bundle/graph_message.h"

namespace pilotfish {
namespace {

using enum MessageField::Kind;

// The fields of onnx.proto, by message.
constexpr MessageField kModelFields[] = {
    {1, "ir_version", kNumber}, {2, "producer_name", kBytes},  {3, "producer_version", kBytes},
    {4, "domain", kBytes},      {5, "model_version", kNumber}, {6, "doc_string", kBytes},
    {7, "graph", kBytes},       {8, "opset_import", kMessages}};
constexpr MessageField kOpsetFields[] = {{1, "domain", kBytes}, {2, "version", kNumber}};
constexpr MessageField kGraphFields[] = {{1, "node", kMessages},        {2, "name", kBytes},
                                         {5, "initializer", kMessages}, {10, "doc_string", kBytes},
                                         {11, "input", kMessages},      {12, "output", kMessages},
                                         {13, "value_info", kMessages}, {16, "metadata_props", kMessages}};
constexpr MessageField kNodeFields[] = {{1, "input", kMessages}, {2, "output", kMessages},    {3, "name", kBytes},
                                        {4, "op_type", kBytes},  {5, "attribute", kMessages}, {6, "doc_string", kBytes},
                                        {7, "domain", kBytes}};
constexpr MessageField kAttributeFields[] = {{1, "name", kBytes},   {2, "f", kFloat},      {3, "i", kNumber},
                                             {4, "s", kBytes},      {5, "t", kBytes},      {7, "floats", kFloats},
                                             {8, "ints", kNumbers}, {20, "type", kNumber}, {13, "doc_string", kBytes}};
constexpr MessageField kTensorFields[] = {
    {1, "dims", kNumbers},         {2, "data_type", kNumber},   {4, "float_data", kFloats},
    {5, "int32_data", kNumbers},   {7, "int64_data", kNumbers}, {8, "name", kBytes},
    {9, "raw_data", kBytes},       {12, "doc_string", kBytes},  {13, "external_data", kMessages},
    {14, "data_location", kNumber}};
constexpr MessageField kEntryFields[] = {{1, "key", kBytes}, {2, "value", kBytes}};
constexpr MessageField kValueFields[] = {
    {1, "name", kBytes}, {2, "type", kBytes}, {3, "doc_string", kBytes}, {4, "metadata_props", kMessages}};
constexpr MessageField kTypeFields[] = {{1, "tensor_type", kBytes}, {6, "denotation", kBytes}};
constexpr MessageField kTensorTypeFields[] = {{1, "elem_type", kNumber}, {2, "shape", kBytes}};
constexpr MessageField kShapeFields[] = {{1, "dim", kMessages}};
constexpr MessageField kDimFields[] = {{1, "dim_value", kNumber}, {2, "dim_param", kBytes}, {3, "denotation", kBytes}};

// Bounds on what a list has, so that small messages cannot become large vectors.
constexpr size_t kMostPorts = 1 << 12, kMostInitializers = 1 << 16, kMostNodePorts = 256, kMostAttributes = 32;

template <typename Item>
void add(std::vector<Item>& list, Item item, size_t most, const char* what) {
  if (list.size() == most) throw GraphError("has more than " + std::to_string(most) + " " + what);
  list.push_back(std::move(item));
}

void read_external(std::string_view message, GraphTensor& tensor) {
  std::string_view key, value;
  MessageReader entry("reference to a file", kEntryFields, message);
  while (entry.next()) (entry.number() == 1 ? key : value) = entry.bytes();
  std::string_view* const place = key == "location" ? &tensor.location
                                  : key == "offset" ? &tensor.offset
                                  : key == "length" ? &tensor.length
                                                    : nullptr;
  if (!place || !place->empty()) entry.wrong("another key than location, offset and length once each");
  *place = value;
}

// The elements of int64 and int32 tensors, which are sizes and axes.
void read_integers(GraphTensor& tensor) {
  const uint64_t width = element_bytes(tensor.type);
  if (tensor.type != ElementType::kInt64 && tensor.type != ElementType::kInt32) return;
  for (size_t at = 0; at + width <= tensor.data.size(); at += width) {
    int64_t wide = 0;
    int32_t narrow = 0;
    std::memcpy(width == 8 ? static_cast<void*>(&wide) : &narrow, tensor.data.data() + at, width);
    tensor.integers.push_back(width == 8 ? wide : narrow);
  }
}

// Of the lists that a graph's nodes have as attributes: programs of RowSteps above all, which are no constants.
constexpr size_t kMostListedIntegers = 1 << 18;

class InlineBytes {
 public:
  void add_listed() {
    if (++num_listed_ > kMostListedIntegers) {
      throw GraphError("is in a graph whose nodes list more than " + std::to_string(kMostListedIntegers) + " integers");
    }
  }
  void add(uint64_t num_bytes) {
    num_bytes_ += num_bytes;
    if (num_bytes_ > kMostInlineBytes) {
      throw GraphError("has constants of more than " + std::to_string(kMostInlineBytes) +
                       " bytes in its own file; larger ones belong into the weights file");
    }
  }

 private:
  uint64_t num_bytes_ = 0;
  size_t num_listed_ = 0;
};

// Elements of a tensor that its message has, in one of the ways to have them.
struct Elements {
  uint64_t num_raw_bytes = 0, num_floats = 0, num_int32 = 0, num_int64 = 0;
};

void check_inline(const MessageReader& reader, const GraphTensor& tensor, const Elements& found, InlineBytes& bytes) {
  const uint64_t count = tensor.num_elements();
  bytes.add(std::min<uint64_t>(count, kMostDim) * element_bytes(tensor.type));
  const auto wanted = [&](ElementType type, uint64_t found_count) { return tensor.type == type ? found_count : 0; };
  const uint64_t typed = wanted(ElementType::kFloat, found.num_floats) + wanted(ElementType::kInt32, found.num_int32) +
                         wanted(ElementType::kBool, found.num_int32) + wanted(ElementType::kInt64, found.num_int64);
  const uint64_t listed = found.num_floats + found.num_int32 + found.num_int64;
  const bool is_raw = found.num_raw_bytes == count * element_bytes(tensor.type) && listed == 0;
  if (!is_raw && !(typed == count && listed == count && found.num_raw_bytes == 0)) {
    reader.wrong("another number of elements than its shape");
  }
}

GraphTensor read_tensor(std::string_view message, InlineBytes& inline_bytes) {
  GraphTensor tensor{};
  Elements found;
  int32_t type = 0, location = 0;
  bool has_reference = false;
  MessageReader reader("tensor", kTensorFields, message);
  while (reader.next()) {
    const auto count_integer = [&](uint64_t& count) {
      reader.integers([&](int64_t integer) {
        if (++count > kMostInlineBytes) reader.wrong("too many elements");
        if (reader.number() == 5 && integer != static_cast<int32_t>(integer))
          reader.wrong("a number that is too large");
        tensor.integers.push_back(integer);
      });
    };
    switch (reader.number()) {
      case 1:
        reader.integers([&](int64_t dim) {
          if (dim < 0 || static_cast<uint64_t>(dim) > kMostDim) reader.wrong("the dimension " + std::to_string(dim));
          add(tensor.dims, dim, kMostGraphRank, "dimensions of a tensor");
        });
        break;
      case 2:
        type = reader.int32();
        break;
      case 4:
        found.num_floats += reader.bytes().empty() ? 1 : reader.bytes().size() / sizeof(float);
        break;
      case 5:
        count_integer(found.num_int32);
        break;
      case 7:
        count_integer(found.num_int64);
        break;
      case 8:
        tensor.name = reader.name();
        break;
      case 9:
        tensor.data = reader.bytes();
        found.num_raw_bytes = tensor.data.size();
        break;
      case 13:
        read_external(reader.bytes(), tensor);
        has_reference = true;
        break;
      case 14:
        location = reader.int32();
        break;
      default:  // doc_string
        break;
    }
  }
  tensor.type = element_type(type);
  tensor.is_external = location == 1;
  if (location < 0 || location > 1 || has_reference != tensor.is_external) reader.wrong("an unclear place");
  if (!tensor.is_external) {
    check_inline(reader, tensor, found, inline_bytes);
    read_integers(tensor);
  } else if (found.num_raw_bytes + found.num_floats + found.num_int32 + found.num_int64 > 0) {
    reader.wrong("elements in two places");
  }
  return tensor;
}

GraphAttribute::Type attribute_type(const MessageReader& reader, int32_t number) {
  using enum GraphAttribute::Type;
  for (const GraphAttribute::Type type : {kFloat, kInteger, kString, kTensor, kFloats, kIntegers}) {
    if (number == static_cast<int32_t>(type)) return type;
  }
  reader.wrong("type " + std::to_string(number) + "; allowed are numbers, lists of numbers, a string and a tensor");
}

GraphAttribute read_attribute(std::string_view message, InlineBytes& inline_bytes) {
  GraphAttribute attribute{};
  MessageReader reader("attribute", kAttributeFields, message);
  int32_t type = 0;
  uint32_t given = 0;  // field 2 to 8 that has the value
  while (reader.next()) {
    const uint32_t number = reader.number();
    if (number >= 2 && number <= 8) {
      if (given != 0 && given != number) reader.wrong("two values");
      given = number;
    }
    switch (number) {
      case 1:
        attribute.name = reader.name();
        break;
      case 3:
        attribute.integer = static_cast<int64_t>(reader.value());
        break;
      case 4:
        attribute.text = reader.name();
        break;
      case 5:
        attribute.tensor = read_tensor(reader.bytes(), inline_bytes);
        if (attribute.tensor->is_external) reader.wrong("a tensor in another file");
        break;
      case 7:
        attribute.num_floats += reader.bytes().empty() ? 1 : reader.bytes().size() / sizeof(float);
        inline_bytes.add(std::max(reader.bytes().size(), sizeof(float)));
        break;
      case 8:
        reader.integers([&](int64_t integer) {
          inline_bytes.add_listed();
          attribute.integers.push_back(integer);
        });
        break;
      case 20:
        type = reader.int32();
        break;
      default:  // f, whose value nothing depends on, and doc_string
        break;
    }
  }
  attribute.type = attribute_type(reader, type);
  const uint32_t expected = static_cast<uint32_t>(type) + 1;  // the field of type FLOAT, 1, is f, 2, and so on
  if (given != 0 && given != expected) reader.wrong("a value of another type than it says");
  if (attribute.type == GraphAttribute::Type::kTensor && !attribute.tensor) reader.wrong("no value");
  return attribute;
}

GraphNode read_node(std::string_view message, InlineBytes& inline_bytes) {
  GraphNode node{};
  std::vector<std::string_view> attributes;
  MessageReader reader("node", kNodeFields, message);
  while (reader.next()) {
    switch (reader.number()) {
      case 1:
        add(node.inputs, reader.name(), kMostNodePorts, "inputs of a node");
        break;
      case 2:
        add(node.outputs, reader.name(), kMostNodePorts, "outputs of a node");
        break;
      case 3:
        node.name = reader.name();
        break;
      case 4:
        node.type = reader.name();
        break;
      case 5:
        add(attributes, reader.bytes(), kMostAttributes, "attributes of a node");
        break;
      case 7:
        node.domain = reader.name();
        break;
      default:  // doc_string
        break;
    }
  }
  try {
    for (const std::string_view attribute : attributes) {
      GraphAttribute made = read_attribute(attribute, inline_bytes);
      if (node.find(made.name)) reader.wrong("the attribute " + std::string(made.name) + " twice");
      node.attributes.push_back(std::move(made));
    }
  } catch (const GraphError& error) {
    throw GraphError(described(node) + error.what());
  }
  return node;
}

GraphPort::Dim read_dim(std::string_view message) {
  GraphPort::Dim dim;
  MessageReader reader("dimension", kDimFields, message);
  while (reader.next()) {
    if (reader.number() == 1) dim.size = static_cast<int64_t>(reader.value());
  }
  if (reader.has_seen(1) && reader.has_seen(2)) reader.wrong("a number and a name");
  if (dim.size < 0 || static_cast<uint64_t>(dim.size) > kMostDim) reader.wrong("the size " + std::to_string(dim.size));
  dim.is_symbolic = !reader.has_seen(1);
  return dim;
}

std::vector<GraphPort::Dim> read_shape(std::string_view message) {
  std::vector<GraphPort::Dim> dims;
  MessageReader reader("shape", kShapeFields, message);
  while (reader.next()) add(dims, read_dim(reader.bytes()), kMostGraphRank, "dimensions of a value");
  return dims;
}

GraphPort read_port(std::string_view message) {
  GraphPort port{};
  std::string_view type, tensor;
  MessageReader reader("value", kValueFields, message);
  while (reader.next()) {
    if (reader.number() == 1) port.name = reader.name();
    if (reader.number() == 2) type = reader.bytes();
  }
  MessageReader types("type of a value", kTypeFields, type);
  while (types.next()) {
    if (types.number() == 1) tensor = types.bytes();
  }
  if (!types.has_seen(1)) reader.wrong("a type that is no tensor");
  int32_t number = 0;
  MessageReader tensors("type of a tensor", kTensorTypeFields, tensor);
  while (tensors.next()) {
    if (tensors.number() == 1) number = tensors.int32();
    if (tensors.number() == 2) port.dims = read_shape(tensors.bytes());
  }
  port.type = element_type(number);
  return port;
}

void read_graph(std::string_view message, GraphFile& file) {
  InlineBytes inline_bytes;
  size_t num_values = 0;
  MessageReader reader("graph", kGraphFields, message);
  while (reader.next()) {
    switch (reader.number()) {
      case 1:
        add(file.nodes, read_node(reader.bytes(), inline_bytes), kMostGraphNodes, "nodes");
        break;
      case 5:
        add(file.initializers, read_tensor(reader.bytes(), inline_bytes), kMostInitializers, "initializers");
        break;
      case 11:
        add(file.inputs, read_port(reader.bytes()), kMostPorts, "inputs");
        break;
      case 12:
        add(file.outputs, read_port(reader.bytes()), kMostPorts, "outputs");
        break;
      case 13:
        if (++num_values > kMostInitializers) reader.wrong("too many values");
        read_port(reader.bytes());
        break;
      default:  // names and notes
        break;
    }
  }
}

GraphOpset read_opset(std::string_view message) {
  GraphOpset opset{};
  MessageReader reader("version of operators", kOpsetFields, message);
  while (reader.next()) {
    if (reader.number() == 1) opset.domain = reader.name();
    if (reader.number() == 2) opset.version = static_cast<int64_t>(reader.value());
  }
  return opset;
}

}  // namespace

ElementType element_type(int64_t number) {
  using enum ElementType;
  for (const ElementType type :
       {kFloat, kUint8, kInt8, kUint16, kInt16, kInt32, kInt64, kBool, kFloat16, kDouble, kUint32, kUint64}) {
    if (number == static_cast<int64_t>(type)) return type;
  }
  throw GraphError("has elements of type " + std::to_string(number) + ", which is none of a bundle's");
}

uint64_t element_bytes(ElementType type) noexcept {
  switch (type) {
    case ElementType::kInt64:
    case ElementType::kDouble:
    case ElementType::kUint64:
      return 8;
    case ElementType::kFloat:
    case ElementType::kInt32:
    case ElementType::kUint32:
      return 4;
    case ElementType::kUint16:
    case ElementType::kInt16:
    case ElementType::kFloat16:
      return 2;
    default:
      return 1;
  }
}

uint64_t GraphTensor::num_elements() const noexcept {
  uint64_t count = 1;
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(dim), &count)) return UINT64_MAX;
  }
  return count;
}

const GraphAttribute* GraphNode::find(std::string_view attribute) const noexcept {
  const auto found = std::ranges::find(attributes, attribute, &GraphAttribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

std::string described(const GraphNode& node) {
  return "node " + std::string(node.type) + " \"" + std::string(node.name) + "\" ";
}

GraphFile read_graph_file(std::string_view bytes) {
  GraphFile file{};
  MessageReader reader("model", kModelFields, bytes);
  while (reader.next()) {
    if (reader.number() == 1) file.ir_version = static_cast<int64_t>(reader.value());
    if (reader.number() == 7) read_graph(reader.bytes(), file);
    if (reader.number() == 8) add(file.opsets, read_opset(reader.bytes()), 16, "versions of operators");
  }
  if (!reader.has_seen(7)) throw GraphError("has no graph");
  return file;
}

}  // namespace pilotfish
