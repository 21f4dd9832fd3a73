#include "bundle/graph_check.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/platform/text.h"
#include "base/status.h"
#include "bundle/bundle_files.h"
#include "bundle/graph_operators.h"
#include "bundle/graph_reader.h"
#include "bundle/graph_shapes.h"

namespace pilotfish {
namespace {

constexpr uint64_t kMostGraphBytes = uint64_t{16} << 20;
constexpr int64_t kLeastIrVersion = 8, kMostIrVersion = 13;
constexpr int64_t kLeastOpset = 18, kMostOpset = 26;

// Why memory and time of a pass are bounded by the bundle's size and the pass's rows R, whatever the graph:
// * A graph has at most kMostGraphNodes nodes, which run once each: no operator of the list has a graph inside.
// * A packed weight has a row of features in at least 36 of its bytes, and at most kMostReaders nodes read it. So what
//   Linear and Embedding make, and what they read, is at most kMostReaders times the weights: `own_` elements a row.
// * All values together have at most kMostGrowth * own_ + kSpareElements elements a row (graph_shapes.h says what is
//   counted, and that no value grows faster than with R), even if none were freed before the pass ends. A Concat of a
//   value with itself doubles what is counted, so that chains of them end within a few nodes. A row of all values
//   counts for own_, without what a Concat of rows makes of it, so that the bound does not grow by itself.
// * Values that do not grow with the rows, which ONNX Runtime may compute while it loads the graph, have together at
//   most kMostConstantElements elements.
// * What the steps of a RowSteps go through is counted like values.
// * Every operator but PagedAttention takes time that is proportional to its weight or values; a PagedAttention reads a
//   cache, which the memory plan has, and at most kMostReaders of them read one.
constexpr uint64_t kMostReaders = 16;
constexpr uint64_t kMostGrowth = 32;
constexpr uint64_t kSpareElements = 1 << 16;
constexpr uint64_t kMostConstantElements = uint64_t{1} << 22;
constexpr uint64_t kMostInputColumns = uint64_t{1} << 18;

class GraphCheck {
 public:
  GraphCheck(const GraphFile& graph, const std::vector<GraphWeight>& weights) : graph_(graph) {
    for (const GraphWeight& weight : weights) weights_.emplace(weight.name, &weight);
  }

  void run() {
    check_versions();
    for (const GraphPort& port : graph_.inputs) add_input(port);
    for (const GraphTensor& tensor : graph_.initializers) add_initializer(tensor);
    for (const GraphNode& node : graph_.nodes) {
      try {
        add_node(node);
      } catch (const GraphError& error) {
        throw GraphError(described(node) + error.what());
      }
    }
    for (const GraphPort& port : graph_.outputs) values_.find(port.name);
    check_total();
  }

 private:
  void check_versions() const {
    const auto between = [](int64_t value, int64_t least, int64_t most, const std::string& what) {
      if (value >= least && value <= most) return;
      throw GraphError("has " + what + " " + std::to_string(value) + "; allowed are " + std::to_string(least) + " to " +
                       std::to_string(most));
    };
    between(graph_.ir_version, kLeastIrVersion, kMostIrVersion, "ir_version");
    std::unordered_set<std::string_view> domains;
    for (const GraphOpset& opset : graph_.opsets) {
      const bool is_own = opset.domain == kOwnDomain;
      if ((!is_own && !opset.domain.empty()) || !domains.insert(opset.domain).second) {
        throw GraphError("has operators of the domain \"" + std::string(opset.domain) +
                         "\"; allowed are ONNX's and pilotfish's, once each");
      }
      between(opset.version, is_own ? 1 : kLeastOpset, is_own ? 1 : kMostOpset, "operators of version");
    }
  }

  // An input is bound with the size that the manifest states; of another one ONNX Runtime runs no node.
  void add_input(const GraphPort& port) {
    if (!port.dims) throw GraphError("has the input " + std::string(port.name) + " without a shape");
    GraphValue value;
    for (const auto& [size, is_symbolic] : *port.dims) {
      value.dims.push_back({is_symbolic ? 1 : static_cast<uint64_t>(size), is_symbolic});
    }
    value.is_opaque = std::ranges::count_if(value.dims, &GraphDim::is_rows) > 1;
    if (value.is_opaque) {
      num_caches_ += value.dims.size() == 4 ? 1 : 0;
    } else if (value.num_elements() > kMostInputColumns) {
      throw GraphError("has the input " + std::string(port.name) + " of more than " +
                       std::to_string(kMostInputColumns) + " columns");
    } else {
      add_to(own_, value.num_elements());
      add_to(total_, value.num_elements());
    }
    values_.add(port.name, std::move(value));
  }

  void add_initializer(const GraphTensor& tensor) {
    const auto known = weights_.find(tensor.name);
    if (tensor.is_external) {
      if (known == weights_.end()) {
        throw GraphError("reads \"" + std::string(tensor.name) + "\" from a file; allowed are the manifest's tensors");
      }
      check_place(tensor, *known->second);
    } else if (known != weights_.end()) {
      throw GraphError("has " + std::string(tensor.name) + " itself, which the manifest has in " +
                       std::string(known->second->file));
    }
    if (values_.has(tensor.name)) return add_default(tensor);
    GraphValue value = value_of(tensor);
    value.num_stored_bytes = tensor.is_external ? known->second->tensor->num_bytes : 0;
    values_.add(tensor.name, std::move(value));
  }

  // Of an input that may be left out.
  void add_default(const GraphTensor& tensor) {
    const std::string name(tensor.name);
    if (tensor.is_external) throw GraphError("has a default for " + name + " in another file");
    if (!defaults_.insert(tensor.name).second || tensor.num_elements() != 0) {
      throw GraphError("has a default for " + name + " that is not empty");
    }
  }

  static void check_place(const GraphTensor& found, const GraphWeight& expected) {
    const TensorEntry& tensor = *expected.tensor;
    const ElementType type = tensor.type == TensorEntry::Type::kU8 ? ElementType::kUint8 : ElementType::kFloat;
    if (found.location == expected.file && found.offset == std::to_string(tensor.offset) &&
        found.length == std::to_string(tensor.num_bytes) && found.type == type && found.dims == tensor.shape) {
      return;
    }
    throw GraphError("reads " + std::string(found.name) + " from \"" + std::string(found.location.substr(0, 256)) +
                     "\", " + std::string(found.length.substr(0, 20)) + " bytes at " +
                     std::string(found.offset.substr(0, 20)) + "; the manifest has it in " +
                     std::string(expected.file) + ", " + std::to_string(tensor.num_bytes) + " bytes at " +
                     std::to_string(tensor.offset));
  }

  void add_node(const GraphNode& node) {
    const GraphOperator* const known = find_operator(node);
    if (!known) {
      throw GraphError("is of the domain \"" + std::string(node.domain) + "\"; allowed are " + names_of_operators());
    }
    for (const std::string_view input : node.inputs) {
      if (!input.empty()) values_.find(input);
    }
    if (node.type == "Cast") check_cast(node);
    const GraphValue value = output_of(node, *known, values_);
    count_readers(node, *known, value);
    if (!widest_ || value.num_elements() > widest_elements_) {
      widest_ = &node;
      widest_elements_ = value.num_elements();
    }
    add_to(value.grows() ? total_ : constants_, value.num_inner_elements);
    for (const std::string_view output : node.outputs) {
      add_to(value.grows() ? total_ : constants_, value.num_elements());
      if (!output.empty()) values_.add(output, value);
    }
    if (constants_ > kMostConstantElements) {
      throw GraphError("makes constants of more than " + std::to_string(kMostConstantElements) + " elements");
    }
  }

  static void check_cast(const GraphNode& node) {
    const GraphAttribute* const to = node.find("to");
    element_type(to ? to->integer : 0);
  }

  void count_readers(const GraphNode& node, const GraphOperator& known, const GraphValue& value) {
    if (known.rule == ShapeRule::kAttention && ++num_attentions_ > kMostReaders * num_caches_) {
      throw GraphError("is one of more than " + std::to_string(kMostReaders) + " for each cache");
    }
    if (known.rule != ShapeRule::kLinear && known.rule != ShapeRule::kEmbedding) return;
    if (++num_readers_[node.inputs[1]] > kMostReaders) {
      throw GraphError("reads " + std::string(node.inputs[1]) + ", as do " + std::to_string(kMostReaders) +
                       " nodes before it; that many are allowed");
    }
    add_to(own_, value.dims.back().size);
  }

  void check_total() const {
    if (total_ <= kMostGrowth * own_ + kSpareElements) return;
    throw GraphError("makes values of " + std::to_string(total_) + " elements for each row, the largest in the " +
                     std::string(widest_->type) + " \"" + std::string(widest_->name) +
                     "\"; its inputs and linear layers " + "make " + std::to_string(own_) + ", and at most " +
                     std::to_string(kMostGrowth) + " times as many are allowed");
  }

  static void add_to(uint64_t& sum, uint64_t count) noexcept {
    if (__builtin_add_overflow(sum, count, &sum)) sum = UINT64_MAX;
  }

  const GraphFile& graph_;
  std::unordered_map<std::string_view, const GraphWeight*> weights_;
  std::unordered_map<std::string_view, uint64_t> num_readers_;
  std::unordered_set<std::string_view> defaults_;
  GraphValues values_;
  uint64_t own_ = 0, total_ = 0, constants_ = 0;
  uint64_t num_caches_ = 0, num_attentions_ = 0;
  const GraphNode* widest_ = nullptr;
  uint64_t widest_elements_ = 0;
};

}  // namespace

std::vector<GraphWeight> weights_of(const ModelEntry& model) {
  std::vector<GraphWeight> weights;
  for (const TensorEntry& tensor : model.tensors) weights.push_back({tensor.name, &tensor, model.weights.file});
  return weights;
}

std::vector<GraphWeight> weights_of(const HeadEntry& head) {
  std::vector<GraphWeight> weights;
  for (const TensorEntry& tensor : head.tensors) weights.push_back({tensor.name, &tensor, head.weights.file});
  for (const SharedTensor& tensor : head.shared) weights.push_back({tensor.name, &tensor.target, tensor.file});
  return weights;
}

void check_graph(const std::filesystem::path& path, std::string_view bytes, const std::vector<GraphWeight>& weights) {
  try {
    const GraphFile graph = read_graph_file(bytes);
    GraphCheck(graph, weights).run();
  } catch (const GraphError& error) {
    std::string message = error.what();  // with names from the file
    std::ranges::replace_if(message, [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
    fail(PF_BUNDLE_CORRUPT, platform::text_of_path(path), ": ", message);
  }
}

std::string first_provider_node(std::string_view bytes) {
  const GraphFile graph = read_graph_file(bytes);
  const auto found = std::ranges::find_if(graph.nodes, needs_provider_kernel);
  if (found == graph.nodes.end()) return {};
  const std::string type(found->type);
  return found->name.empty() ? type : type + " (" + std::string(found->name) + ")";
}

PlacedGraph read_graph(const BundleSource& source, const FileEntry& entry, const std::vector<GraphWeight>& weights) {
  std::string bytes = read_checked(source, entry, kMostGraphBytes);
  check_graph(source.folder / entry.file, bytes, weights);
  std::vector<std::string_view> files;
  for (const GraphWeight& weight : weights) {
    if (std::ranges::find(files, weight.file) == files.end()) files.push_back(weight.file);
  }
  return place_weights(source.folder, std::move(bytes), files);
}

}  // namespace pilotfish
