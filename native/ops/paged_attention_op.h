// The operator PagedAttention of GRAPH.md.
#pragma once

#include <array>

#include "kernel_io.h"
#include "operator.h"
#include "paged_attention.h"

namespace pilotfish {

class PagedAttentionOp {
 public:
  static constexpr const char* kName = "PagedAttention";
  static constexpr std::array<InputSpec, 12> kInputs = {{{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},          // qkv
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},          // position_ids
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},          // seq_starts
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},          // context_lens
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},          // block_table
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64},         // tree_mask
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},          // cos
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},          // sin
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED},      // key_cache
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED},      // value_cache
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},    // q_norm
                                                         {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true}}};  // k_norm

  explicit PagedAttentionOp(const KernelInfo& info);
  void compute(const KernelContext& context) const;

 private:
  AttentionShape shape_;
};

}  // namespace pilotfish
