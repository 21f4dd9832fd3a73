// The operator Join of GRAPH.md on a CUDA device.
#include <memory>
#include <string>

#include "checked.h"
#include "cuda_operator.h"
#include "cuda_operators.h"
#include "row_inputs.h"

namespace pilotfish::cuda {
namespace {

static_assert(kMostJoined == kMostJoinedParts);

class JoinOp {
 public:
  static constexpr const char* kName = "Join";
  static constexpr auto kInputs = kJoinInputs;

  JoinOp(ModelContext& context, const NodeInfo& node)
      : context_(context), axis_(join_axis(node)), output_name_(node.output_name(0)) {}
  void enqueue(const NodeIo& io, cudaStream_t stream) const {
    const Parts parts = inputs_of(io, kInputs);
    const JoinedShape shape = check_join(axis_, parts);
    float* const out = io.output(0, {shape.num_rows, shape.num_columns});
    if (shape.num_rows == 0 || shape.num_columns == 0) return;
    if (axis_ == JoinAxis::kRows) return join_rows(parts, out, stream);
    join_columns(parts, shape, out, stream);
  }

 private:
  using Parts = std::array<Tensor, kMostJoined>;

  static void join_rows(const Parts& parts, float* out, cudaStream_t stream) {
    for (const Tensor& part : parts) {
      if (!part.exists()) continue;
      const auto count = static_cast<size_t>(part.count());
      PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(out, part.data, sizeof(float) * count, cudaMemcpyDeviceToDevice, stream));
      out += count;
    }
  }
  void join_columns(const Parts& parts, const JoinedShape& shape, float* out, cudaStream_t stream) const {
    JoinColumns join = {};
    for (const Tensor& part : parts) {
      if (!part.exists()) continue;
      join.parts[join.num_parts] = part.as<const float>();
      join.widths[join.num_parts++] = static_cast<int>(part.dims[1]);
    }
    join.num_rows = static_cast<int>(shape.num_rows);
    join.num_columns = static_cast<int>(shape.num_columns);
    join.out = out;
    join.halves_out =
        context_.begin_copy(output_name_, ModelContext::Can::kCopy, {shape.num_rows, join.num_columns}).halves;
    PILOTFISH_CUDA_CHECK(launch_join_columns(join, stream));
  }

  ModelContext& context_;
  JoinAxis axis_;
  std::string output_name_;
};

}  // namespace

OperatorPtr join_op(ModelContext& context) { return std::make_shared<CudaOperator<JoinOp>>(context); }

}  // namespace pilotfish::cuda
