// The operators on the CPU, each made by a function of its own file: the one list of them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/ort_abi.h"

namespace pilotfish {

using OperatorPtr = std::shared_ptr<const OrtCustomOp>;

// num_threads: of the kernels' own workers; 0: ONNX Runtime's intra-op threads.
OperatorPtr embedding_op(int32_t num_threads);
OperatorPtr linear_op(int32_t num_threads);
OperatorPtr paged_attention_op(int32_t num_threads);
OperatorPtr gather_rows_op(int32_t num_threads);
OperatorPtr join_op(int32_t num_threads);
OperatorPtr rows_part_op(int32_t num_threads);
OperatorPtr norm_activation_op(int32_t num_threads);
OperatorPtr row_steps_op(int32_t num_threads);

inline constexpr std::array kOperators{embedding_op, linear_op,    paged_attention_op, gather_rows_op,
                                       join_op,      rows_part_op, norm_activation_op, row_steps_op};

}  // namespace pilotfish
