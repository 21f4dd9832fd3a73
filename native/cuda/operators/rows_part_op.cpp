// The operator RowsPart of GRAPH.md on a CUDA device.
#include <memory>

#include "checked.h"
#include "cuda_operator.h"
#include "cuda_operators.h"
#include "row_inputs.h"

namespace pilotfish::cuda {
namespace {

class RowsPartOp {
 public:
  static constexpr const char* kName = "RowsPart";
  static constexpr auto kInputs = kRowsPartInputs;

  RowsPartOp(ModelContext&, const NodeInfo& node) : settings_(rows_part(node)) {}
  void enqueue(const NodeIo& io, cudaStream_t stream) const {
    const Tensor x = io.input(0);
    const int64_t num_rows = check_rows_part(settings_, x), count = num_rows * x.dims[1];
    float* const out = io.output(0, {num_rows, x.dims[1]});
    if (count == 0) return;
    const float* const source = x.as<const float>() + settings_.part * count;
    PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(out, source, sizeof(float) * count, cudaMemcpyDeviceToDevice, stream));
  }

 private:
  RowsPart settings_;
};

}  // namespace

OperatorPtr rows_part_op(ModelContext& context) { return std::make_shared<CudaOperator<RowsPartOp>>(context); }

}  // namespace pilotfish::cuda
