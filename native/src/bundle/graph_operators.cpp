#include "bundle/graph_operators.h"

#include <algorithm>
#include <iterator>

namespace pilotfish {
namespace {

using enum ShapeRule;

// What acts on each row by itself and has no state, no randomness, no graph inside and no size but those of its inputs
// and constants. SimplifiedLayerNormalization is ONNX Runtime's, in ONNX's domain.
constexpr GraphOperator kOperators[] = {{kOwnDomain, "Embedding", kEmbedding},
                                        {kOwnDomain, "Linear", kLinear},
                                        {kOwnDomain, "PagedAttention", kAttention},
                                        {kOwnDomain, "GatherRows", kGatherRows},
                                        {kOwnDomain, "Join", kConcat},
                                        {kOwnDomain, "RowsPart", kRowsPart},
                                        {kOwnDomain, "NormActivation", kAsFirst},
                                        {kOwnDomain, "RowSteps", kRowSteps},
                                        {"", "Abs", kAsFirst},
                                        {"", "Add", kBroadcast},
                                        {"", "And", kBroadcast},
                                        {"", "Cast", kAsFirst},
                                        {"", "Clip", kAsFirst},
                                        {"", "Concat", kConcat},
                                        {"", "Constant", kConstant},
                                        {"", "Div", kBroadcast},
                                        {"", "Equal", kBroadcast},
                                        {"", "Erf", kAsFirst},
                                        {"", "Exp", kAsFirst},
                                        {"", "Expand", kExpand},
                                        {"", "Gather", kGather},
                                        {"", "Gelu", kAsFirst},
                                        {"", "Greater", kBroadcast},
                                        {"", "GreaterOrEqual", kBroadcast},
                                        {"", "Identity", kAsFirst},
                                        {"", "LayerNormalization", kAsFirst},
                                        {"", "Less", kBroadcast},
                                        {"", "LessOrEqual", kBroadcast},
                                        {"", "Log", kAsFirst},
                                        {"", "Max", kBroadcast},
                                        {"", "Min", kBroadcast},
                                        {"", "Mul", kBroadcast},
                                        {"", "Neg", kAsFirst},
                                        {"", "Not", kAsFirst},
                                        {"", "Or", kBroadcast},
                                        {"", "Pow", kBroadcast},
                                        {"", "RMSNormalization", kAsFirst},
                                        {"", "Reciprocal", kAsFirst},
                                        {"", "ReduceMax", kReduce},
                                        {"", "ReduceMean", kReduce},
                                        {"", "ReduceSum", kReduce},
                                        {"", "Relu", kAsFirst},
                                        {"", "Reshape", kReshape},
                                        {"", "Shape", kShape},
                                        {"", "Sigmoid", kAsFirst},
                                        {"", "SimplifiedLayerNormalization", kAsFirst},
                                        {"", "Slice", kAsFirst},
                                        {"", "Softmax", kAsFirst},
                                        {"", "Softplus", kAsFirst},
                                        {"", "Split", kSplit},
                                        {"", "Sqrt", kAsFirst},
                                        {"", "Squeeze", kSqueeze},
                                        {"", "Sub", kBroadcast},
                                        {"", "Tanh", kAsFirst},
                                        {"", "Transpose", kTranspose},
                                        {"", "Unsqueeze", kUnsqueeze},
                                        {"", "Where", kBroadcast}};

// What copies a whole value, or says only what it is called or how it is shaped.
constexpr std::string_view kWithoutKernel[] = {"Constant", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze"};

}  // namespace

const GraphOperator* find_operator(const GraphNode& node) noexcept {
  for (const GraphOperator& known : kOperators) {
    if (known.domain == node.domain && known.type == node.type) return &known;
  }
  return nullptr;
}

std::string names_of_operators() {
  std::string names;
  for (const GraphOperator& known : kOperators) {
    if (!names.empty()) names += ", ";
    if (!known.domain.empty()) names.append(known.domain).append(".");
    names += known.type;
  }
  return names;
}

bool needs_provider_kernel(const GraphNode& node) noexcept {
  return node.domain != kOwnDomain && std::ranges::find(kWithoutKernel, node.type) == std::end(kWithoutKernel);
}

}  // namespace pilotfish
