// The operators on a CUDA device, each made by a function of its own file: the one list of them.
#pragma once

#include <array>
#include <memory>

#include "base/ort_abi.h"

namespace pilotfish::cuda {

class ModelContext;
using OperatorPtr = std::shared_ptr<const OrtCustomOp>;

// The context must outlive the operator.
OperatorPtr embedding_op(ModelContext& context);
OperatorPtr linear_op(ModelContext& context);
OperatorPtr paged_attention_op(ModelContext& context);
OperatorPtr gather_rows_op(ModelContext& context);
OperatorPtr join_op(ModelContext& context);
OperatorPtr rows_part_op(ModelContext& context);
OperatorPtr norm_activation_op(ModelContext& context);
OperatorPtr row_steps_op(ModelContext& context);

inline constexpr std::array kOperators{embedding_op, linear_op,    paged_attention_op, gather_rows_op,
                                       join_op,      rows_part_op, norm_activation_op, row_steps_op};

}  // namespace pilotfish::cuda
