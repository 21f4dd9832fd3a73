// How large the values of a graph can become, as bounds that hold for every pass.
//
// A dimension is a number n, which stands for at most n, or for at most n * R where it counts rows; R >= 1 is the most
// rows that a pass has of any kind. Elementwise, every rule gives at least what the operator makes: sums and maxima of
// such bounds are bounds (a R + b <= (a + b) R), and a division is rounded up. A value may grow with the rows along one
// axis only, so that it has at most num_elements() * R elements, or num_elements() where it does not grow.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bundle/graph_operators.h"

namespace pilotfish {

struct GraphDim {
  uint64_t size;
  bool is_rows;
};

struct GraphValue {
  std::vector<GraphDim> dims;
  // Axes of unknown size, as caches and block tables have: only the operators of GRAPH.md may read it.
  bool is_opaque = false;
  const std::vector<int64_t>* integers = nullptr;  // of a constant in the graph's file that has such
  uint64_t num_stored_bytes = 0;                   // in the weights file
  uint64_t num_inner_elements = 0;                 // a row's, that the steps of a RowSteps go through to make it

  // Saturates. A row's, where it grows with the rows.
  uint64_t num_elements() const noexcept;
  bool grows() const noexcept;
};

class GraphValues {
 public:
  // Throws GraphError where the value is there already.
  void add(std::string_view name, GraphValue value);
  bool has(std::string_view name) const { return values_.contains(name); }
  // Throws GraphError where no input, initializer or earlier node has made it.
  const GraphValue& find(std::string_view name) const;

 private:
  std::unordered_map<std::string_view, GraphValue> values_;
};

GraphValue value_of(const GraphTensor& tensor);
// Of every output of a node. Throws GraphError where they have no bound.
GraphValue output_of(const GraphNode& node, const GraphOperator& known, const GraphValues& values);

}  // namespace pilotfish
