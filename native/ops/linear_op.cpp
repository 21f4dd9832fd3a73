// The operator Linear of GRAPH.md.
#include <array>
#include <memory>
#include <stdexcept>

#include "kernel_io.h"
#include "linear.h"
#include "operator.h"
#include "operators.h"

namespace pilotfish {
namespace {

enum Input : size_t { kX, kWeight, kBias, kNormWeight, kResidual };

constexpr int64_t kMaxFeatures = int64_t{1} << 24;

Activation parse_activation(const std::string& name) {
  if (name == "none") return Activation::kNone;
  if (name == "swiglu") return Activation::kSwiglu;
  throw std::invalid_argument("activation is '" + name + "', not one of none, swiglu");
}

class LinearOp {
 public:
  static constexpr const char* kName = "Linear";
  static constexpr std::array<InputSpec, 5> kInputs = {{{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
                                                        {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},
                                                        {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},
                                                        {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},
                                                        {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true}}};

  explicit LinearOp(const KernelInfo& info);
  void compute(const KernelContext& context) const;

 private:
  LinearWeights shape_;  // without the tensors
};

LinearOp::LinearOp(const KernelInfo& info)
    : shape_{.format = parse_weight_format(info.text("format")),
             .activation = parse_activation(info.text("activation")),
             .in_features = info.integer("in_features", 1, kMaxFeatures),
             .out_features = info.integer("out_features", 1, kMaxFeatures),
             .packed = nullptr,
             .bias = nullptr,
             .norm_weight = nullptr,
             .norm_epsilon = info.real("norm_epsilon")} {
  require(shape_.activation == Activation::kNone || shape_.out_features % (2 * kTileRows) == 0, "out_features is ",
          shape_.out_features, ", not a multiple of 32 as swiglu needs");
  require(shape_.norm_epsilon >= 0, "norm_epsilon is ", shape_.norm_epsilon, ", not at least 0");
}

void LinearOp::compute(const KernelContext& context) const {
  const Tensor x = context.input(kX), weight = context.input(kWeight);
  const Tensor bias = context.input(kBias), norm_weight = context.input(kNormWeight);
  const Tensor residual = context.input(kResidual);
  require_shape("x", x, {-1, shape_.in_features});
  const auto num_bytes = packed_bytes(shape_.format, shape_.out_features, shape_.in_features);
  require_shape("weight", weight, {static_cast<int64_t>(num_bytes)});
  if (bias.exists()) require_shape("bias", bias, {shape_.out_features});
  if (norm_weight.exists()) require_shape("norm_weight", norm_weight, {shape_.in_features});
  const int64_t num_rows = x.dims[0], num_outputs = shape_.num_outputs();
  if (residual.exists()) require_shape("residual", residual, {num_rows, num_outputs});

  LinearWeights weights = shape_;
  weights.packed = weight.as<const std::byte>();
  weights.bias = bias.as<const float>();
  weights.norm_weight = norm_weight.as<const float>();
  float* const y = context.output(0, {num_rows, num_outputs});
  linear(weights, {num_rows, x.as<const float>(), residual.as<const float>(), y}, context.parallel());
}

}  // namespace

OperatorPtr linear_op(int32_t num_threads) { return std::make_shared<Operator<LinearOp>>(num_threads); }

}  // namespace pilotfish
