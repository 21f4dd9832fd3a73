// The operator RowSteps of GRAPH.md on a CUDA device.
#pragma once

#include "cuda_operator.h"
#include "row_steps_inputs.h"

namespace pilotfish::cuda {

class RowStepsOp {
 public:
  static constexpr const char* kName = "RowSteps";
  static constexpr auto kInputs = kRowStepInputs;
  static constexpr size_t kMostOutputs = kMostRowOutputs;

  RowStepsOp(ModelContext& context, const NodeInfo& node);
  void enqueue(const NodeIo& io, cudaStream_t stream) const;

 private:
  RowProgram program_;
};

}  // namespace pilotfish::cuda
