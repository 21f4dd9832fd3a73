// The operator RowsPart of GRAPH.md on a CUDA device.
#pragma once

#include "cuda_operator.h"
#include "row_inputs.h"

namespace pilotfish::cuda {

class RowsPartOp {
 public:
  static constexpr const char* kName = "RowsPart";
  static constexpr auto kInputs = kRowsPartInputs;

  RowsPartOp(ModelContext&, const NodeInfo& node) : settings_(rows_part(node)) {}
  void enqueue(const NodeIo& io, cudaStream_t stream) const;

 private:
  RowsPart settings_;
};

}  // namespace pilotfish::cuda
