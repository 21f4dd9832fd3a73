// The operator GatherRows of GRAPH.md.
#pragma once

#include "row_inputs.h"

namespace pilotfish {

class GatherRowsOp {
 public:
  static constexpr const char* kName = "GatherRows";
  static constexpr auto kInputs = kGatherRowsInputs;

  explicit GatherRowsOp(const KernelInfo&) {}
  void compute(const KernelContext& context) const;
};

}  // namespace pilotfish
