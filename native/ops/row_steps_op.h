// The operator RowSteps of GRAPH.md.
#pragma once

#include "operator.h"
#include "row_steps_inputs.h"

namespace pilotfish {

class RowStepsOp {
 public:
  static constexpr const char* kName = "RowSteps";
  static constexpr auto kInputs = kRowStepInputs;
  static constexpr size_t kMostOutputs = kMostRowOutputs;

  explicit RowStepsOp(const KernelInfo& info);
  void compute(const KernelContext& context) const;

 private:
  RowProgram program_;
};

}  // namespace pilotfish
