// The operator Linear of GRAPH.md on a CUDA device.
#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "checked.h"
#include "cuda_operator.h"
#include "cuda_operators.h"
#include "lowbit_attributes.h"

namespace pilotfish::cuda {
namespace {

enum InputIndex : size_t { kX, kWeight, kBias, kNormWeight, kResidual };

Activation parse_activation(const std::string& name) {
  if (name == "none") return Activation::kNone;
  if (name == "swiglu") return Activation::kSwiGlu;
  throw std::invalid_argument("activation is '" + name + "', not one of none, swiglu");
}

/// Rows [first, first + count) of a linear with f32 results, as one of its own.
LowbitLinear rows_of(const LowbitLinear& linear, int first, int count) {
  const auto after = [first](auto* data, int num_columns) {
    return data ? data + static_cast<size_t>(first) * num_columns : nullptr;
  };
  const int in = linear.shape.in_features;
  const int out = linear.activation == Activation::kSwiGlu ? linear.shape.out_features / 2 : linear.shape.out_features;
  LowbitLinear part = linear;
  part.num_rows = count;
  part.x = after(static_cast<const uint16_t*>(linear.x), in);
  part.residual = after(static_cast<const float*>(linear.residual), out);
  part.out = after(static_cast<float*>(linear.out), out);
  part.input_norm.squares = after(linear.input_norm.squares, num_square_parts(in));
  part.next.halves = after(static_cast<uint16_t*>(linear.next.halves), out);
  part.next.squares = after(linear.next.squares, num_square_parts(out));
  return part;
}

LowbitShape padded(LowbitShape shape) {
  shape.in_features = padded_columns(shape.in_features);
  return shape;
}

class LinearOp {
 public:
  static constexpr const char* kName = "Linear";
  static constexpr std::array<InputSpec, 5> kInputs = {
      {{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
       {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, false, InputSpec::Place::kHost},
       {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},
       {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},
       {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true}}};

  LinearOp(ModelContext& context, const NodeInfo& node);
  void enqueue(const NodeIo& io, cudaStream_t stream) const;

 private:
  // The input as f16 [num_rows, shape_.in_features]: its producer's copy, or normalised or converted here.
  ModelContext::Copy input_copy(const Tensor& x, cudaStream_t stream) const;
  void enqueue_rows(const NodeIo& io, cudaStream_t stream, const void* weights) const;
  // Any number of rows, in as few launches as is fastest.
  void launch(const LowbitLinear& linear, cudaStream_t stream) const;

  ModelContext& context_;
  LowbitShape shape_;  // of rows that are padded to whole vectors: packed weights have zeros there
  int num_columns_;    // of the input
  Activation activation_;
  float norm_epsilon_;
  const float* norm_weight_;  // device memory, or nullptr
  std::string input_name_, output_name_;
  LowbitPlan plan_;
  WeightStore::ForLinear weights_;
};

LinearOp::LinearOp(ModelContext& context, const NodeInfo& node)
    : context_(context),
      shape_(padded(lowbit_shape(node, "in_features", "out_features"))),
      num_columns_(lowbit_shape(node, "in_features", "out_features").in_features),
      activation_(parse_activation(node.text("activation"))),
      norm_epsilon_(node.real("norm_epsilon")),
      norm_weight_(node.device_floats(kNormWeight, num_columns_)),
      input_name_(node.input_name(kX)),
      output_name_(node.output_name(0)),
      plan_(plan_lowbit_linear(shape_, context.limits())),
      weights_(context.weights().for_linear(shape_, node.constant(kWeight, packed_lowbit_bytes(shape_)))) {
  require(activation_ == Activation::kNone || shape_.out_features % 32 == 0, "out_features is ", shape_.out_features,
          ", not a multiple of 32 as swiglu needs");
  context_.reserve_halves(shape_.in_features);
  context_.reserve_linear(plan_);
  context_.reserve_prefill(shape_);
  if (num_columns_ == shape_.in_features) context_.want_copy(input_name_, num_columns_, norm_weight_);
}

ModelContext::Copy LinearOp::input_copy(const Tensor& x, cudaStream_t stream) const {
  if (num_columns_ == shape_.in_features) {  // who makes a copy does not pad it
    const ModelContext::Copy copy = context_.copy_of(input_name_, norm_weight_, norm_epsilon_);
    if (copy.halves) return copy;
  }
  PILOTFISH_CUDA_CHECK(launch_rms_norm(x.as<const float>(), norm_weight_, norm_epsilon_, static_cast<int>(x.dims[0]),
                                       num_columns_, context_.halves(), stream));
  return {context_.halves(), {}};
}

// Where an input or a launch fails, the next pass finds that this one has not ended.
void LinearOp::enqueue(const NodeIo& io, cudaStream_t stream) const {
  enqueue_rows(io, stream, weights_.acquire());
  weights_.release();
}

void LinearOp::enqueue_rows(const NodeIo& io, cudaStream_t stream, const void* weights) const {
  const Tensor x = io.input(kX), bias = io.input(kBias), residual = io.input(kResidual);
  require_shape("x", x, {-1, num_columns_});
  if (bias.exists()) require_shape("bias", bias, {shape_.out_features});
  const int64_t num_rows = x.dims[0];
  const int64_t num_columns = activation_ == Activation::kSwiGlu ? shape_.out_features / 2 : shape_.out_features;
  if (residual.exists()) require_shape("residual", residual, {num_rows, num_columns});
  float* const out = io.output(0, {num_rows, num_columns});
  if (num_rows == 0) return;
  require(num_rows <= context_.pass().max_rows, "x has ", x, ", more rows than the largest pass");

  const ModelContext::Copy copy = input_copy(x, stream);
  LowbitLinear linear = {};
  linear.shape = shape_;
  linear.plan = plan_;
  linear.weights = weights;
  linear.x = copy.halves;
  linear.x_copy_stride = copy.stride;
  linear.bias = bias.as<const float>();
  linear.residual = residual.as<const float>();
  linear.out = out;
  linear.output_type = OutputType::kF32;
  linear.activation = activation_;
  linear.num_rows = static_cast<int>(num_rows);
  linear.passes = context_.passes();
  linear.input_norm = copy.norm;
  const ModelContext::Can can = activation_ != Activation::kNone                ? ModelContext::Can::kCopy
                                : leaves_copies(shape_, plan_, linear.num_rows) ? ModelContext::Can::kCopies
                                                                                : ModelContext::Can::kNorm;
  linear.next = context_.begin_copy(output_name_, can, {num_rows, static_cast<int>(num_columns)});
  linear.partials = context_.linear_partials();
  launch(linear, stream);
}

void LinearOp::launch(const LowbitLinear& linear, cudaStream_t stream) const {
  for (int first = 0; first < linear.num_rows;) {
    const int most = std::min(linear.num_rows - first, kMaxPrefillRows);
    const bool is_prefill = prefers_prefill(shape_, most, context_.limits());
    LowbitLinear part = rows_of(linear, first, is_prefill ? most : std::min(most, kMaxLinearRows));
    part.turn = context_.next_turn();
    PILOTFISH_CUDA_CHECK(is_prefill ? launch_prefill_linear(part, context_.prefill_scratch(), context_.limits(), stream)
                                    : launch_lowbit_linear(part, context_.limits(), stream));
    first += part.num_rows;
  }
}

}  // namespace

OperatorPtr linear_op(ModelContext& context) { return std::make_shared<CudaOperator<LinearOp>>(context); }

}  // namespace pilotfish::cuda
