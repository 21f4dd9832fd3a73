// The operator NormActivation of GRAPH.md.
#pragma once

#include "row_inputs.h"

namespace pilotfish {

class NormActivationOp {
 public:
  static constexpr const char* kName = "NormActivation";
  static constexpr auto kInputs = kNormInputs;

  explicit NormActivationOp(const KernelInfo& info) : settings_(norm_settings(info)) {}
  void compute(const KernelContext& context) const;

 private:
  NormSettings settings_;
};

}  // namespace pilotfish
