#include "linear_op.h"

#include <algorithm>

#include "checked.h"
#include "lowbit_attributes.h"

namespace pilotfish::cuda {
namespace {

enum InputIndex : size_t { kX, kWeight, kBias, kNormWeight, kResidual };

Activation parse_activation(const std::string& name) {
  if (name == "none") return Activation::kNone;
  if (name == "swiglu") return Activation::kSwiGlu;
  throw std::invalid_argument("activation is '" + name + "', not one of none, swiglu");
}

template <typename Element>
Element* offset(Element* data, int64_t count) {
  return data ? data + count : nullptr;
}

}  // namespace

LinearOp::LinearOp(ModelContext& context, const NodeInfo& node)
    : context_(context),
      shape_(lowbit_shape(node, "in_features", "out_features")),
      activation_(parse_activation(node.text("activation"))),
      norm_epsilon_(node.real("norm_epsilon")),
      norm_weight_(node.device_floats(kNormWeight, shape_.in_features)),
      input_name_(node.input_name(kX)),
      output_name_(node.output_name(0)),
      plan_(plan_lowbit_linear(shape_, context.limits())),
      weights_(context.weights(shape_, node.constant(kWeight, packed_lowbit_bytes(shape_)))) {
  require(shape_.in_features % 8 == 0, "in_features is ", shape_.in_features,
          ", not a multiple of 8 as the CUDA kernels need");
  require(activation_ == Activation::kNone || shape_.out_features % 32 == 0, "out_features is ", shape_.out_features,
          ", not a multiple of 32 as swiglu needs");
  context_.reserve_halves(shape_.in_features);
  context_.reserve_linear(plan_);
  context_.want_copy(input_name_, shape_.in_features, norm_weight_);
}

ModelContext::Copy LinearOp::input_copy(const Tensor& x, cudaStream_t stream) const {
  const ModelContext::Copy copy = context_.copy_of(input_name_, norm_weight_, norm_epsilon_);
  if (copy.halves) return copy;
  PILOTFISH_CUDA_CHECK(launch_rms_norm(x.as<const float>(), norm_weight_, norm_epsilon_, static_cast<int>(x.dims[0]),
                                       shape_.in_features, context_.halves(), stream));
  return {context_.halves(), {}};
}

void LinearOp::enqueue(const NodeIo& io, cudaStream_t stream) const {
  const Tensor x = io.input(kX), bias = io.input(kBias), residual = io.input(kResidual);
  require_shape("x", x, {-1, shape_.in_features});
  if (bias.exists()) require_shape("bias", bias, {shape_.out_features});
  const int64_t num_rows = x.dims[0];
  const int64_t num_columns = activation_ == Activation::kSwiGlu ? shape_.out_features / 2 : shape_.out_features;
  if (residual.exists()) require_shape("residual", residual, {num_rows, num_columns});
  float* const out = io.output(0, {num_rows, num_columns});
  if (num_rows == 0) return;
  require(num_rows <= context_.pass().max_rows, "x has ", x, ", more rows than the largest pass");

  const ModelContext::Copy copy = input_copy(x, stream);
  const NextInput next = context_.begin_copy(
      output_name_, activation_ == Activation::kNone ? ModelContext::Can::kNorm : ModelContext::Can::kCopy);
  const auto* const halves_in = static_cast<const uint16_t*>(copy.halves);
  for (int64_t first = 0; first < num_rows; first += kMaxLinearRows) {
    LowbitLinear linear = {};
    linear.shape = shape_;
    linear.plan = plan_;
    linear.weights = weights_;
    linear.x = halves_in + first * shape_.in_features;
    linear.bias = bias.as<const float>();
    linear.residual = offset(residual.as<const float>(), first * num_columns);
    linear.out = out + first * num_columns;
    linear.output_type = OutputType::kF32;
    linear.activation = activation_;
    linear.num_rows = static_cast<int>(std::min<int64_t>(num_rows - first, kMaxLinearRows));
    linear.passes = context_.passes();
    linear.turn = context_.next_turn();
    linear.input_norm = copy.norm;
    linear.input_norm.squares = offset(copy.norm.squares, first * num_square_parts(shape_.in_features));
    linear.next = next;
    linear.next.halves = offset(static_cast<uint16_t*>(next.halves), first * num_columns);
    linear.next.squares = offset(next.squares, first * num_square_parts(static_cast<int>(num_columns)));
    linear.partials = context_.linear_partials();
    PILOTFISH_CUDA_CHECK(launch_lowbit_linear(linear, context_.limits(), stream));
  }
}

}  // namespace pilotfish::cuda
