#include "norm_activation_op.h"

#include "checked.h"

namespace pilotfish::cuda {

void NormActivationOp::enqueue(const NodeIo& io, cudaStream_t stream) const {
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
      .halves_out = context_.begin_copy(output_name_, ModelContext::Can::kCopy, {inputs.num_rows, num_columns}).halves};
  PILOTFISH_CUDA_CHECK(launch_norm_activation(norm, stream));
}

}  // namespace pilotfish::cuda
