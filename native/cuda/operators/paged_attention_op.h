// The operator PagedAttention of GRAPH.md on a CUDA device. Shapes are checked; the values of positions, tables and
// masks lie on the device and are the caller's word.
#pragma once

#include <array>
#include <string>

#include "cuda_operator.h"

namespace pilotfish::cuda {

class PagedAttentionOp {
 public:
  static constexpr const char* kName = "PagedAttention";
  static constexpr std::array<Input, 12> kInputs = {{{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},          // qkv
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},          // position_ids
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},          // seq_starts
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},          // context_lens
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},          // block_table
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64},         // tree_mask
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},          // cos
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},          // sin
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16},        // key_cache
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16},        // value_cache
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},    // q_norm
                                                     {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true}}};  // k_norm

  PagedAttentionOp(ModelContext& context, const NodeInfo& node);
  void enqueue(const NodeIo& io, cudaStream_t stream) const;

 private:
  PagedAttention checked_inputs(const NodeIo& io) const;

  ModelContext& context_;
  AttentionShape shape_;
  std::string output_name_;
};

}  // namespace pilotfish::cuda
