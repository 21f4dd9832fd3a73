#include "join_op.h"

#include <algorithm>

namespace pilotfish {

void JoinOp::compute(const KernelContext& context) const {
  const auto parts = inputs_of(context, kInputs);
  const JoinedShape shape = check_join(axis_, parts);
  float* const out = context.output(0, {shape.num_rows, shape.num_columns});
  // Parts below each other are the columns of one long row.
  const int64_t num_rows = axis_ == JoinAxis::kRows ? 1 : shape.num_rows;
  const int64_t width = axis_ == JoinAxis::kRows ? shape.num_rows * shape.num_columns : shape.num_columns;
  int64_t column = 0;
  for (const Tensor& part : parts) {
    if (!part.exists()) continue;
    const int64_t num_columns = axis_ == JoinAxis::kRows ? part.count() : part.dims[1];
    const auto source = part.as<const float>();
    for (int64_t row = 0; row < num_rows; ++row) {
      std::copy_n(source + row * num_columns, num_columns, out + row * width + column);
    }
    column += num_columns;
  }
}

}  // namespace pilotfish
