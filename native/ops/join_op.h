// The operator Join of GRAPH.md.
#pragma once

#include "row_inputs.h"

namespace pilotfish {

class JoinOp {
 public:
  static constexpr const char* kName = "Join";
  static constexpr auto kInputs = kJoinInputs;

  explicit JoinOp(const KernelInfo& info) : axis_(join_axis(info)) {}
  void compute(const KernelContext& context) const;

 private:
  JoinAxis axis_;
};

}  // namespace pilotfish
