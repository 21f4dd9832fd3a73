// The operator Linear of GRAPH.md on a CUDA device.
#pragma once

#include <array>
#include <string>

#include "cuda_operator.h"

namespace pilotfish::cuda {

class LinearOp {
 public:
  static constexpr const char* kName = "Linear";
  static constexpr std::array<InputSpec, 5> kInputs = {
      {{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
       {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, false, InputSpec::Place::kHost},
       {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},
       {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},
       {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true}}};

  LinearOp(ModelContext& context, const NodeInfo& node);
  void enqueue(const NodeIo& io, cudaStream_t stream) const;

 private:
  // The input as f16 [num_rows, shape_.in_features]: its producer's copy, or normalised or converted here.
  ModelContext::Copy input_copy(const Tensor& x, cudaStream_t stream) const;
  void enqueue_rows(const NodeIo& io, cudaStream_t stream, const void* weights) const;
  // Any number of rows, in as few launches as is fastest.
  void launch(const LowbitLinear& linear, cudaStream_t stream) const;

  ModelContext& context_;
  LowbitShape shape_;  // of rows that are padded to whole vectors: packed weights have zeros there
  int num_columns_;    // of the input
  Activation activation_;
  float norm_epsilon_;
  const float* norm_weight_;  // device memory, or nullptr
  std::string input_name_, output_name_;
  LowbitPlan plan_;
  WeightStore::ForLinear weights_;
};

}  // namespace pilotfish::cuda
