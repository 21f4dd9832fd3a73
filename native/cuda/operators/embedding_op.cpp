#include "embedding_op.h"

#include "checked.h"
#include "lowbit_attributes.h"

namespace pilotfish::cuda {
namespace {

enum InputIndex : size_t { kInputIds, kWeight };

}  // namespace

EmbeddingOp::EmbeddingOp(ModelContext& context, const NodeInfo& node)
    : context_(context),
      shape_(lowbit_shape(node, "num_columns", "num_rows")),
      output_name_(node.output_name(0)),
      scale_(node.real_or("scale", 1.0f)),
      weights_(context.weights().repacked(shape_, node.constant(kWeight, packed_lowbit_bytes(shape_)))) {}

void EmbeddingOp::enqueue(const NodeIo& io, cudaStream_t stream) const {
  const Tensor ids = io.input(kInputIds);
  require_shape("input_ids", ids, {-1});
  const int64_t num_rows = ids.dims[0];
  float* const out = io.output(0, {num_rows, shape_.in_features});
  if (num_rows == 0) return;
  const NextInput next = context_.begin_copy(output_name_, ModelContext::Can::kNorm, {num_rows, shape_.in_features});
  PILOTFISH_CUDA_CHECK(launch_embedding(shape_, weights_, ids.as<const int32_t>(), static_cast<int>(num_rows), scale_,
                                        out, next, stream));
}

}  // namespace pilotfish::cuda
