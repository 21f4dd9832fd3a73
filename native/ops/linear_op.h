// The operator Linear of GRAPH.md.
#pragma once

#include <array>

#include "kernel_io.h"
#include "linear.h"
#include "operator.h"

namespace pilotfish {

class LinearOp {
 public:
  static constexpr const char* kName = "Linear";
  static constexpr std::array<InputSpec, 5> kInputs = {{{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
                                                        {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},
                                                        {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},
                                                        {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},
                                                        {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true}}};

  explicit LinearOp(const KernelInfo& info);
  void compute(const KernelContext& context) const;

 private:
  LinearWeights shape_;  // without the tensors
};

}  // namespace pilotfish
