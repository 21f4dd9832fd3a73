// The operator RowSteps of GRAPH.md on a CUDA device.
#include <memory>

#include "checked.h"
#include "cuda_operator.h"
#include "cuda_operators.h"
#include "row_steps_inputs.h"

namespace pilotfish::cuda {
namespace {

class RowStepsOp {
 public:
  static constexpr const char* kName = "RowSteps";
  static constexpr auto kInputs = kRowStepInputs;
  static constexpr size_t kMostOutputs = kMostRowOutputs;

  RowStepsOp(ModelContext& context, const NodeInfo& node) : program_(read_row_program(node)) {
    const size_t shared_bytes = row_step_shared_bytes(program_),
                 most = context.limits().shared_bytes_per_block - kOwnRowStepBytes;
    require(shared_bytes <= most, "its values in between take ", shared_bytes,
            " bytes of shared memory, and this device has ", most, "; use device cpu");
  }
  void enqueue(const NodeIo& io, cudaStream_t stream) const {
    const Tensor first = io.input(0);
    RowStepTensors tensors = {.num_rows = first.rank == 0 ? 0 : first.dims[0], .inputs = {}, .outputs = {}};
    for (size_t i = 0; i < program_.input_widths.size(); ++i) {
      const Tensor input = io.input(i);
      require_row_input(program_, i, input, tensors.num_rows);
      tensors.inputs[i] = input.as<const float>();
    }
    for (size_t i = 0; i < program_.output_widths.size(); ++i) {
      tensors.outputs[i] = io.output(i, {tensors.num_rows, program_.output_widths[i]});
    }
    if (tensors.num_rows > 0) PILOTFISH_CUDA_CHECK(launch_row_steps(program_, tensors, stream));
  }

 private:
  RowProgram program_;
};

}  // namespace

OperatorPtr row_steps_op(ModelContext& context) { return std::make_shared<CudaOperator<RowStepsOp>>(context); }

}  // namespace pilotfish::cuda
