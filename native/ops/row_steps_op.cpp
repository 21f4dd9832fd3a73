// The operator RowSteps of GRAPH.md.
#include <memory>

#include "operator.h"
#include "operators.h"
#include "row_steps.h"
#include "row_steps_inputs.h"

namespace pilotfish {
namespace {

class RowStepsOp {
 public:
  static constexpr const char* kName = "RowSteps";
  static constexpr auto kInputs = kRowStepInputs;
  static constexpr size_t kMostOutputs = kMostRowOutputs;

  explicit RowStepsOp(const KernelInfo& info) : program_(read_row_program(info)) {}
  void compute(const KernelContext& context) const {
    const Tensor first = context.input(0);
    RowTensors tensors = {.num_rows = first.rank == 0 ? 0 : first.dims[0], .inputs = {}, .outputs = {}};
    for (size_t i = 0; i < program_.input_widths.size(); ++i) {
      const Tensor input = context.input(i);
      require_row_input(program_, i, input, tensors.num_rows);
      tensors.inputs[i] = input.as<const float>();
    }
    for (size_t i = 0; i < program_.output_widths.size(); ++i) {
      tensors.outputs[i] = context.output(i, {tensors.num_rows, program_.output_widths[i]});
    }
    row_steps(program_, tensors, context.parallel());
  }

 private:
  RowProgram program_;
};

}  // namespace

OperatorPtr row_steps_op(int32_t num_threads) { return std::make_shared<Operator<RowStepsOp>>(num_threads); }

}  // namespace pilotfish
