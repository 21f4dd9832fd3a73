#include "rows_part_op.h"

#include <algorithm>

namespace pilotfish {

void RowsPartOp::compute(const KernelContext& context) const {
  const Tensor x = context.input(0);
  const int64_t num_rows = check_rows_part(settings_, x), count = num_rows * x.dims[1];
  std::copy_n(x.as<const float>() + settings_.part * count, count, context.output(0, {num_rows, x.dims[1]}));
}

}  // namespace pilotfish
