// The operator GatherRows of GRAPH.md on a CUDA device.
#include <memory>

#include "checked.h"
#include "cuda_operator.h"
#include "cuda_operators.h"
#include "row_inputs.h"

namespace pilotfish::cuda {
namespace {

class GatherRowsOp {
 public:
  static constexpr const char* kName = "GatherRows";
  static constexpr auto kInputs = kGatherRowsInputs;

  GatherRowsOp(ModelContext&, const NodeInfo&) {}
  void enqueue(const NodeIo& io, cudaStream_t stream) const {
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
};

}  // namespace

OperatorPtr gather_rows_op(ModelContext& context) { return std::make_shared<CudaOperator<GatherRowsOp>>(context); }

}  // namespace pilotfish::cuda
