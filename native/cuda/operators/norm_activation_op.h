// The operator NormActivation of GRAPH.md on a CUDA device.
#pragma once

#include <string>

#include "cuda_operator.h"
#include "row_inputs.h"

namespace pilotfish::cuda {

class NormActivationOp {
 public:
  static constexpr const char* kName = "NormActivation";
  static constexpr auto kInputs = kNormInputs;

  NormActivationOp(ModelContext& context, const NodeInfo& node)
      : context_(context), settings_(norm_settings(node)), output_name_(node.output_name(0)) {}
  void enqueue(const NodeIo& io, cudaStream_t stream) const;

 private:
  ModelContext& context_;
  NormSettings settings_;
  std::string output_name_;
};

}  // namespace pilotfish::cuda
