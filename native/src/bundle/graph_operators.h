// The operators that a graph may have: the one list of them. Each names the rule by which graph_shapes.cpp bounds what
// its outputs take; to allow an operator is to add a line to graph_operators.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bundle/graph_reader.h"

namespace pilotfish {

enum class ShapeRule {
  kBroadcast,  // elementwise over all inputs
  kAsFirst,    // at most as large as the first input, of its rank
  kReduce,
  kSplit,
  kConcat,
  kGather,
  kReshape,
  kTranspose,
  kUnsqueeze,
  kSqueeze,
  kExpand,
  kConstant,
  kShape,
  kEmbedding,
  kLinear,
  kAttention,
  kGatherRows,
  kRowsPart,
  kRowSteps
};

struct GraphOperator {
  std::string_view domain;  // empty: ONNX's own
  std::string_view type;
  ShapeRule rule;
};

// nullptr where a graph may not have the operator.
const GraphOperator* find_operator(const GraphNode& node) noexcept;
// For errors.
std::string names_of_operators();
// Whether ONNX Runtime's provider computes the node on a CUDA device by a kernel of its own: pilotfish's operators are
// in libpilotfish_cuda, and some of ONNX's only copy or name what is there.
bool needs_provider_kernel(const GraphNode& node) noexcept;

inline constexpr std::string_view kOwnDomain = "pilotfish";

}  // namespace pilotfish
