#include "bundle/graph_shapes.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "base/row_program.h"

namespace pilotfish {
namespace {

using Dims = std::vector<GraphDim>;

uint64_t times(uint64_t a, uint64_t b) noexcept {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

uint64_t plus(uint64_t a, uint64_t b) noexcept {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<uint64_t>::max() : sum;
}

uint64_t divided(uint64_t a, uint64_t b) noexcept { return b == 0 ? a : a / b + (a % b != 0 ? 1 : 0); }

GraphDim larger(GraphDim a, GraphDim b) noexcept { return {std::max(a.size, b.size), a.is_rows || b.is_rows}; }

// A node with what its rule needs of it.
class Reader {
 public:
  Reader(const GraphNode& node, const GraphValues& values) : node_(node), values_(values) {}

  // Of an input that must be there and whose sizes are known.
  const Dims& dims(size_t input) const {
    if (input >= node_.inputs.size()) throw GraphError("has too few inputs");
    const GraphValue& value = values_.find(node_.inputs[input]);
    if (value.is_opaque) {
      throw GraphError("reads " + std::string(node_.inputs[input]) + ", which only pilotfish's operators may");
    }
    return value.dims;
  }
  size_t num_inputs() const noexcept { return node_.inputs.size(); }
  size_t num_outputs() const noexcept { return node_.outputs.size(); }
  bool has(size_t input) const { return input < node_.inputs.size() && !node_.inputs[input].empty(); }

  // Integers that decide about sizes, which must be constants of the graph's file.
  const std::vector<int64_t>& constant(size_t input, const char* what) const {
    const std::vector<int64_t>* found = has(input) ? values_.find(node_.inputs[input]).integers : nullptr;
    if (found) return *found;
    throw GraphError(std::string("needs ") + what + " as a constant in the graph's file, or its size has no bound");
  }
  std::optional<int64_t> integer(std::string_view attribute) const {
    const GraphAttribute* const found = node_.find(attribute);
    if (!found) return std::nullopt;
    if (found->type != GraphAttribute::Type::kInteger) throw GraphError(std::string(attribute) + " is no integer");
    return found->integer;
  }
  uint64_t size(std::string_view attribute) const {
    const std::optional<int64_t> found = integer(attribute);
    if (!found || *found < 1 || static_cast<uint64_t>(*found) > kMostDim) {
      throw GraphError("needs " + std::string(attribute) + " of at least 1");
    }
    return static_cast<uint64_t>(*found);
  }
  const std::vector<int64_t>& integers(std::string_view attribute) const {
    const GraphAttribute* const found = node_.find(attribute);
    if (!found || found->type != GraphAttribute::Type::kIntegers) {
      throw GraphError("needs " + std::string(attribute) + ", a list of integers");
    }
    return found->integers;
  }
  std::string_view text(std::string_view attribute) const {
    const GraphAttribute* const found = node_.find(attribute);
    return found ? found->text : std::string_view();
  }
  const GraphAttribute* find(std::string_view attribute) const noexcept { return node_.find(attribute); }
  const GraphNode& node() const noexcept { return node_; }
  const GraphValue& value(size_t input) const {
    if (!has(input)) throw GraphError("has too few inputs");
    return values_.find(node_.inputs[input]);
  }

 private:
  const GraphNode& node_;
  const GraphValues& values_;
};

size_t axis_of(int64_t axis, size_t rank) {
  const auto count = static_cast<int64_t>(rank);
  if (axis < -count || axis >= count) throw GraphError("has no axis " + std::to_string(axis));
  return static_cast<size_t>(axis < 0 ? axis + count : axis);
}

// Whether each of `rank` axes is named.
std::vector<bool> axes_of(std::span<const int64_t> axes, size_t rank) {
  std::vector<bool> named(rank);
  for (const int64_t axis : axes) named[axis_of(axis, rank)] = true;
  return named;
}

Dims broadcast(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() < b.size() ? b : a;
  const Dims& shorter = a.size() < b.size() ? a : b;
  Dims result = longer;
  const size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) result[offset + i] = larger(longer[offset + i], shorter[i]);
  return result;
}

Dims broadcast_inputs(const Reader& node) {
  Dims result = node.dims(0);
  for (size_t i = 1; i < node.num_inputs(); ++i) result = broadcast(result, node.dims(i));
  return result;
}

Dims reduce(const Reader& node) {
  const Dims& x = node.dims(0);
  if (node.integer("keepdims").value_or(1) != 0) return x;
  const std::vector<bool> reduced = axes_of(node.constant(1, "axes"), x.size());
  Dims result;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!reduced[i]) result.push_back(x[i]);
  }
  return result;
}

// The largest part stands for all.
Dims split(const Reader& node) {
  Dims result = node.dims(0);
  GraphDim& dim = result[axis_of(node.integer("axis").value_or(0), result.size())];
  if (!node.has(1)) {
    dim.size = divided(dim.size, std::max<uint64_t>(node.num_outputs(), 1));
    return result;
  }
  int64_t most = 0;
  for (const int64_t size : node.constant(1, "the sizes of its parts")) most = std::max(most, size);
  dim = {static_cast<uint64_t>(most), false};
  return result;
}

Dims concat(const Reader& node) {
  Dims result = node.dims(0);
  const size_t axis = axis_of(node.integer("axis").value_or(0), result.size());
  for (size_t i = 1; i < node.num_inputs(); ++i) {
    const Dims& part = node.dims(i);
    if (part.size() != result.size()) throw GraphError("joins values of different rank");
    for (size_t k = 0; k < result.size(); ++k) {
      const uint64_t sum = plus(result[k].size, part[k].size);
      result[k] = larger(result[k], part[k]);
      if (k == axis) result[k].size = sum;
    }
  }
  return result;
}

Dims gather(const Reader& node) {
  const Dims &data = node.dims(0), &indices = node.dims(1);
  const size_t axis = axis_of(node.integer("axis").value_or(0), data.size());
  Dims result(data.begin(), data.begin() + axis);
  result.insert(result.end(), indices.begin(), indices.end());
  result.insert(result.end(), data.begin() + axis + 1, data.end());
  return result;
}

// The elements stay as many; those of axes that are not copied are shared out.
Dims reshape(const Reader& node) {
  const Dims& x = node.dims(0);
  if (node.integer("allowzero").value_or(0) != 0) throw GraphError("allowzero is not supported");
  const std::vector<int64_t>& shape = node.constant(1, "its shape");
  Dims result;
  GraphDim rest{1, false};
  std::optional<size_t> inferred;
  uint64_t others = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t size = shape[i];
    if (size < -1 || (size == -1 && inferred) || (size == 0 && i >= x.size())) throw GraphError("has a wrong shape");
    if (size == -1) inferred = i;
    if (size > 0) others = times(others, static_cast<uint64_t>(size));
    result.push_back(size == 0 ? x[i] : GraphDim{static_cast<uint64_t>(std::max<int64_t>(size, 1)), false});
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const bool is_copied = i < shape.size() && shape[i] == 0;
    if (!is_copied) rest = {times(rest.size, x[i].size), rest.is_rows || x[i].is_rows};
  }
  if (inferred) result[*inferred] = {divided(rest.size, others), rest.is_rows};
  return result;
}

Dims transpose(const Reader& node) {
  const Dims& x = node.dims(0);
  const GraphAttribute* const order = node.find("perm");
  if (!order) return {x.rbegin(), x.rend()};
  const std::vector<bool> named = axes_of(order->integers, x.size());
  if (order->integers.size() != x.size() || !std::ranges::all_of(named, std::identity())) {
    throw GraphError("has a perm that is no order of its axes");
  }
  Dims result;
  for (const int64_t axis : order->integers) result.push_back(x[axis_of(axis, x.size())]);
  return result;
}

Dims unsqueeze(const Reader& node) {
  const Dims& x = node.dims(0);
  const std::vector<int64_t>& axes = node.constant(1, "axes");
  const size_t rank = x.size() + axes.size();
  if (rank > kMostGraphRank) throw GraphError("makes a value of more than 8 dimensions");
  const std::vector<bool> is_new = axes_of(axes, rank);
  if (static_cast<size_t>(std::ranges::count(is_new, true)) != axes.size()) throw GraphError("names an axis twice");
  Dims result;
  for (size_t i = 0, next = 0; i < rank; ++i) result.push_back(is_new[i] ? GraphDim{1, false} : x[next++]);
  return result;
}

Dims squeeze(const Reader& node) {
  const Dims& x = node.dims(0);
  const std::vector<bool> gone = axes_of(node.constant(1, "axes"), x.size());
  Dims result;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!gone[i]) result.push_back(x[i]);
  }
  return result;
}

Dims expand(const Reader& node) {
  Dims wanted;
  for (const int64_t size : node.constant(1, "its shape")) {
    if (size < 1) throw GraphError("has a wrong shape");
    wanted.push_back({static_cast<uint64_t>(size), false});
  }
  return broadcast(node.dims(0), wanted);
}

GraphValue constant(const Reader& node) {
  if (node.node().attributes.size() != 1) throw GraphError("has not one value");
  const GraphAttribute& value = node.node().attributes.front();
  if (value.tensor) return value_of(*value.tensor);
  GraphValue result;
  if (value.type == GraphAttribute::Type::kIntegers) result.integers = &value.integers;
  if (value.type == GraphAttribute::Type::kIntegers || value.type == GraphAttribute::Type::kFloats) {
    result.dims.push_back({std::max<uint64_t>(value.integers.size(), value.num_floats), false});
  }
  return result;
}

// Columns that a packed weight's bytes have room for: a row of at least one group of 64 weights takes 36 bytes or more.
uint64_t packed_columns(const Reader& node, std::string_view rows_attribute, uint64_t columns) {
  constexpr uint64_t kLeastRowBytes = 36;
  const uint64_t num_bytes = node.value(1).num_stored_bytes;
  if (num_bytes == 0) throw GraphError("has a weight that is no tensor of the manifest");
  if (node.size(rows_attribute) > num_bytes / kLeastRowBytes || columns > num_bytes) {
    throw GraphError("is larger than its weight of " + std::to_string(num_bytes) + " bytes");
  }
  return columns;
}

Dims embedding(const Reader& node) {
  const Dims& ids = node.dims(0);
  if (ids.size() != 1) throw GraphError("has ids of another rank than 1");
  return {ids[0], {packed_columns(node, "num_rows", node.size("num_columns")), false}};
}

Dims linear(const Reader& node) {
  const Dims& x = node.dims(0);
  if (x.size() != 2) throw GraphError("has an input of another rank than 2");
  const uint64_t features = packed_columns(node, "out_features", node.size("out_features"));
  return {x[0], {node.text("activation") == "swiglu" ? features / 2 : features, false}};
}

Dims gather_rows(const Reader& node) {
  const Dims &x = node.dims(0), &rows = node.dims(1);
  if (x.size() != 2 || rows.size() != 1) throw GraphError("picks rows of no matrix, or by no list");
  return {rows[0], x[1]};
}

Dims rows_part(const Reader& node) {
  Dims result = node.dims(0);
  if (result.empty()) throw GraphError("has an input without rows");
  result[0].size = divided(result[0].size, node.size("num_parts"));
  return result;
}

// The widest output stands for all. Its steps are read as those who run them read them.
GraphValue row_steps(const Reader& node) {
  RowProgram program;
  try {
    program = read_row_program({node.integer("row_inputs").value_or(0), node.integers("widths"), node.integers("steps"),
                                node.integers("outputs")});
  } catch (const std::invalid_argument& error) {
    throw GraphError(error.what());
  }
  if (node.num_inputs() != program.input_widths.size() || node.num_outputs() != program.output_widths.size()) {
    throw GraphError("has another number of inputs or outputs than its widths and outputs say");
  }
  for (size_t i = 0; i < node.num_inputs(); ++i) node.dims(i);  // that are no caches
  const Dims& first = node.dims(0);
  if (first.empty()) throw GraphError("has no rows");
  const int32_t widest = std::ranges::max(program.output_widths);
  return {.dims = {first[0], {static_cast<uint64_t>(widest), false}}, .num_inner_elements = program.num_elements};
}

Dims dims_of(const Reader& node, ShapeRule rule) {
  switch (rule) {
    case ShapeRule::kBroadcast:
      return broadcast_inputs(node);
    case ShapeRule::kReduce:
      return reduce(node);
    case ShapeRule::kSplit:
      return split(node);
    case ShapeRule::kConcat:
      return concat(node);
    case ShapeRule::kGather:
      return gather(node);
    case ShapeRule::kReshape:
      return reshape(node);
    case ShapeRule::kTranspose:
      return transpose(node);
    case ShapeRule::kUnsqueeze:
      return unsqueeze(node);
    case ShapeRule::kSqueeze:
      return squeeze(node);
    case ShapeRule::kExpand:
      return expand(node);
    case ShapeRule::kShape:
      return {{node.dims(0).size(), false}};
    case ShapeRule::kEmbedding:
      return embedding(node);
    case ShapeRule::kLinear:
      return linear(node);
    case ShapeRule::kGatherRows:
      return gather_rows(node);
    case ShapeRule::kRowsPart:
      return rows_part(node);
    default:  // a PagedAttention gives less than it gets: the queries' part of each row
      return node.dims(0);
  }
}

}  // namespace

uint64_t GraphValue::num_elements() const noexcept {
  uint64_t count = 1;
  for (const GraphDim& dim : dims) count = times(count, dim.size);
  return count;
}

bool GraphValue::grows() const noexcept { return std::ranges::any_of(dims, &GraphDim::is_rows); }

void GraphValues::add(std::string_view name, GraphValue value) {
  if (name.empty()) throw GraphError("has a value without a name");
  if (!values_.emplace(name, std::move(value)).second) throw GraphError("makes " + std::string(name) + " twice");
}

const GraphValue& GraphValues::find(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw GraphError("reads " + std::string(name) + ", which nothing before it makes");
  return found->second;
}

GraphValue value_of(const GraphTensor& tensor) {
  GraphValue value;
  for (const int64_t dim : tensor.dims) value.dims.push_back({static_cast<uint64_t>(dim), false});
  const bool has_integers = tensor.type == ElementType::kInt64 || tensor.type == ElementType::kInt32;
  if (!tensor.is_external && has_integers && tensor.dims.size() <= 1) value.integers = &tensor.integers;
  return value;
}

GraphValue output_of(const GraphNode& node, const GraphOperator& known, const GraphValues& values) {
  const Reader reader(node, values);
  if (known.rule == ShapeRule::kConstant) return constant(reader);
  GraphValue result =
      known.rule == ShapeRule::kRowSteps ? row_steps(reader) : GraphValue{.dims = dims_of(reader, known.rule)};
  if (result.dims.size() > kMostGraphRank) throw GraphError("makes a value of more than 8 dimensions");
  if (std::ranges::count_if(result.dims, &GraphDim::is_rows) > 1) {
    throw GraphError("makes a value that grows with the square of a pass's rows");
  }
  return result;
}

}  // namespace pilotfish
