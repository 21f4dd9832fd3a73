// The operator PagedAttention of GRAPH.md on a CUDA device. Shapes are checked; the values of positions, tables and
// masks lie on the device and are the caller's word.
#pragma once

#include <string>

#include "cuda_operator.h"
#include "paged_attention_inputs.h"

namespace pilotfish::cuda {

class PagedAttentionOp {
 public:
  static constexpr const char* kName = "PagedAttention";
  static constexpr std::array kInputs = attention_input::all(ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED);

  PagedAttentionOp(ModelContext& context, const NodeInfo& node);
  void enqueue(const NodeIo& io, cudaStream_t stream) const;

 private:
  PagedAttention checked_inputs(const NodeIo& io) const;

  ModelContext& context_;
  AttentionShape shape_;
  std::string output_name_;
};

}  // namespace pilotfish::cuda
