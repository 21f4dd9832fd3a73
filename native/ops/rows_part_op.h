// The operator RowsPart of GRAPH.md.
#pragma once

#include "row_inputs.h"

namespace pilotfish {

class RowsPartOp {
 public:
  static constexpr const char* kName = "RowsPart";
  static constexpr auto kInputs = kRowsPartInputs;

  explicit RowsPartOp(const KernelInfo& info) : settings_(rows_part(info)) {}
  void compute(const KernelContext& context) const;

 private:
  RowsPart settings_;
};

}  // namespace pilotfish
