// The operator Embedding of GRAPH.md.
#pragma once

#include <array>

#include "kernel_io.h"
#include "operator.h"
#include "packed_weights.h"

namespace pilotfish {

class EmbeddingOp {
 public:
  static constexpr const char* kName = "Embedding";
  static constexpr std::array<InputSpec, 2> kInputs = {
      {{ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32}, {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8}}};

  explicit EmbeddingOp(const KernelInfo& info);
  void compute(const KernelContext& context) const;

 private:
  WeightFormat format_;
  int64_t num_rows_;
  int64_t num_columns_;
  float scale_;
};

}  // namespace pilotfish
