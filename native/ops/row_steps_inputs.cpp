#include "row_steps_inputs.h"

namespace pilotfish {

RowProgram read_row_program(const KernelInfo& info) {
  const auto widths = info.integers("widths"), steps = info.integers("steps"), outputs = info.integers("outputs");
  RowProgram program = read_row_program({info.integer("row_inputs", 1, kMostRowInputs), widths, steps, outputs});
  require(info.num_inputs() == program.input_widths.size(), "the node has ", info.num_inputs(), " inputs and ",
          program.input_widths.size(), " widths");
  require(info.num_outputs() == program.output_widths.size(), "the node has ", info.num_outputs(), " outputs, and ",
          program.output_widths.size(), " in its attribute");
  return program;
}

void require_row_input(const RowProgram& program, size_t i, const Tensor& input, int64_t num_rows) {
  const int64_t width = program.input_widths[i];
  const bool is_row = i < static_cast<size_t>(program.num_row_inputs);
  const bool has_rows = input.exists() && (!is_row || (input.rank > 1 && input.dims[0] == num_rows));
  require(has_rows && input.count() == (is_row ? num_rows * width : width), "input ", i, " has shape ", input,
          ", not that of ", is_row ? num_rows : 1, is_row ? " rows of " : " vector of ", width);
}

}  // namespace pilotfish
