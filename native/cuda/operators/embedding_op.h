// The operator Embedding of GRAPH.md on a CUDA device.
#pragma once

#include <array>
#include <string>

#include "cuda_operator.h"

namespace pilotfish::cuda {

class EmbeddingOp {
 public:
  static constexpr const char* kName = "Embedding";
  static constexpr std::array<InputSpec, 2> kInputs = {
      {{ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32}, {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, false, InputSpec::Place::kHost}}};

  EmbeddingOp(ModelContext& context, const NodeInfo& node);
  void enqueue(const NodeIo& io, cudaStream_t stream) const;

 private:
  ModelContext& context_;
  LowbitShape shape_;
  std::string output_name_;
  float scale_;
  const void* weights_;
};

}  // namespace pilotfish::cuda
