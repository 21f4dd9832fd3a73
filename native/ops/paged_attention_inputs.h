// The inputs of PagedAttention, the same for every provider; kernels check which types of cache they have.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "operator_base.h"

namespace pilotfish::attention_input {

enum Index : size_t {
  kQkv,
  kPositionIds,
  kSeqStarts,
  kContextLens,
  kBlockTable,
  kTreeMask,
  kCos,
  kSin,
  kKeyCache,
  kValueCache,
  kQNorm,
  kKNorm,
  kSlopes
};

inline constexpr int64_t kMaxHeads = 1024;
inline constexpr int64_t kMaxWindow = int64_t{1} << 30;

constexpr std::array<InputSpec, 13> all(ONNXTensorElementDataType cache_type) {
  return {{{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},   // qkv
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},   // position_ids
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},   // seq_starts
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},   // context_lens
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},   // block_table
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64},  // tree_mask
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},   // cos
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},   // sin
           {cache_type},
           {cache_type},
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},    // q_norm
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},    // k_norm
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true}}};  // slopes
}

}  // namespace pilotfish::attention_input
