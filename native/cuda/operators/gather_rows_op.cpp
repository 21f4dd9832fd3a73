#include "gather_rows_op.h"

#include "checked.h"

namespace pilotfish::cuda {

void GatherRowsOp::enqueue(const NodeIo& io, cudaStream_t stream) const {
  const auto [x, rows] = inputs_of(io, kInputs);
  check_gather_rows(x, rows);
  float* const out = io.output(0, {rows.dims[0], x.dims[1]});
  if (rows.dims[0] == 0 || x.dims[1] == 0) return;
  const PickedRows picked{.source = x.as<const float>(),
                          .rows = rows.as<const int32_t>(),
                          .num_source_rows = static_cast<int>(x.dims[0]),
                          .num_rows = static_cast<int>(rows.dims[0]),
                          .num_columns = static_cast<int>(x.dims[1]),
                          .out = out};
  PILOTFISH_CUDA_CHECK(launch_pick_rows(picked, stream));
}

}  // namespace pilotfish::cuda
