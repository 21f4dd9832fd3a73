// The operator Join of GRAPH.md on a CUDA device.
#pragma once

#include <string>

#include "cuda_operator.h"
#include "row_inputs.h"

namespace pilotfish::cuda {

class JoinOp {
 public:
  static constexpr const char* kName = "Join";
  static constexpr auto kInputs = kJoinInputs;

  JoinOp(ModelContext& context, const NodeInfo& node)
      : context_(context), axis_(join_axis(node)), output_name_(node.output_name(0)) {}
  void enqueue(const NodeIo& io, cudaStream_t stream) const;

 private:
  using Parts = std::array<Tensor, kMostJoined>;

  static void join_rows(const Parts& parts, float* out, cudaStream_t stream);
  void join_columns(const Parts& parts, const JoinedShape& shape, float* out, cudaStream_t stream) const;

  ModelContext& context_;
  JoinAxis axis_;
  std::string output_name_;
};

}  // namespace pilotfish::cuda
