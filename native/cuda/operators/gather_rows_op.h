// The operator GatherRows of GRAPH.md on a CUDA device.
#pragma once

#include "cuda_operator.h"
#include "row_inputs.h"

namespace pilotfish::cuda {

class GatherRowsOp {
 public:
  static constexpr const char* kName = "GatherRows";
  static constexpr auto kInputs = kGatherRowsInputs;

  GatherRowsOp(ModelContext&, const NodeInfo&) {}
  void enqueue(const NodeIo& io, cudaStream_t stream) const;
};

}  // namespace pilotfish::cuda
