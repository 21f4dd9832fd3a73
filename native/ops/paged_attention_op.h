// The operator PagedAttention of GRAPH.md.
#pragma once

#include "kernel_io.h"
#include "operator.h"
#include "paged_attention.h"
#include "paged_attention_inputs.h"

namespace pilotfish {

class PagedAttentionOp {
 public:
  static constexpr const char* kName = "PagedAttention";
  static constexpr std::array kInputs = attention_input::all(ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED);

  explicit PagedAttentionOp(const KernelInfo& info);
  void compute(const KernelContext& context) const;

 private:
  AttentionShape shape_;
};

}  // namespace pilotfish
