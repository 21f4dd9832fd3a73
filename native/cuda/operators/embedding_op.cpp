// The operator Embedding of GRAPH.md on a CUDA device.
#include <array>
#include <memory>
#include <string>

#include "checked.h"
#include "cuda_operator.h"
#include "cuda_operators.h"
#include "lowbit_attributes.h"

namespace pilotfish::cuda {
namespace {

enum InputIndex : size_t { kInputIds, kWeight };

class EmbeddingOp {
 public:
  static constexpr const char* kName = "Embedding";
  static constexpr std::array<InputSpec, 2> kInputs = {
      {{ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32}, {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, false, InputSpec::Place::kHost}}};

  EmbeddingOp(ModelContext& context, const NodeInfo& node)
      : context_(context),
        shape_(lowbit_shape(node, "num_columns", "num_rows")),
        output_name_(node.output_name(0)),
        scale_(node.real_or("scale", 1.0f)),
        weights_(context.weights().repacked(shape_, node.constant(kWeight, packed_lowbit_bytes(shape_)))) {}
  void enqueue(const NodeIo& io, cudaStream_t stream) const {
    const Tensor ids = io.input(kInputIds);
    require_shape("input_ids", ids, {-1});
    const int64_t num_rows = ids.dims[0];
    float* const out = io.output(0, {num_rows, shape_.in_features});
    if (num_rows == 0) return;
    const NextInput next = context_.begin_copy(output_name_, ModelContext::Can::kNorm, {num_rows, shape_.in_features});
    PILOTFISH_CUDA_CHECK(launch_embedding(shape_, weights_, ids.as<const int32_t>(), static_cast<int>(num_rows), scale_,
                                          out, next, stream));
  }

 private:
  ModelContext& context_;
  LowbitShape shape_;
  std::string output_name_;
  float scale_;
  const void* weights_;
};

}  // namespace

OperatorPtr embedding_op(ModelContext& context) { return std::make_shared<CudaOperator<EmbeddingOp>>(context); }

}  // namespace pilotfish::cuda
