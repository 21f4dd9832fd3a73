// The operator NormActivation of GRAPH.md on a CUDA device.
#include <memory>
#include <string>

#include "checked.h"
#include "cuda_operator.h"
#include "cuda_operators.h"
#include "row_inputs.h"

namespace pilotfish::cuda {
namespace {

class NormActivationOp {
 public:
  static constexpr const char* kName = "NormActivation";
  static constexpr auto kInputs = kNormInputs;

  NormActivationOp(ModelContext& context, const NodeInfo& node)
      : context_(context), settings_(norm_settings(node)), output_name_(node.output_name(0)) {}
  void enqueue(const NodeIo& io, cudaStream_t stream) const {
    const auto [x, weight, bias, residual] = inputs_of(io, kInputs);
    const NormInputs inputs = check_norm(x, weight, bias, residual);
    float* const out = io.output_like(0, x);
    if (inputs.num_rows == 0) return;
    const auto num_columns = static_cast<int>(inputs.num_columns);
    const NormActivation norm{
        .settings = settings_,
        .num_rows = static_cast<int>(inputs.num_rows),
        .num_columns = num_columns,
        .x = x.as<const float>(),
        .weight = weight.as<const float>(),
        .bias = bias.as<const float>(),
        .residual = residual.as<const float>(),
        .out = out,
        .halves_out =
            context_.begin_copy(output_name_, ModelContext::Can::kCopy, {inputs.num_rows, num_columns}).halves};
    PILOTFISH_CUDA_CHECK(launch_norm_activation(norm, stream));
  }

 private:
  ModelContext& context_;
  NormSettings settings_;
  std::string output_name_;
};

}  // namespace

OperatorPtr norm_activation_op(ModelContext& context) {
  return std::make_shared<CudaOperator<NormActivationOp>>(context);
}

}  // namespace pilotfish::cuda
