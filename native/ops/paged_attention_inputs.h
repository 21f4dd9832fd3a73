// The inputs of PagedAttention, the same for every provider; kernels check which types of cache they have.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/cache_tensor.h"
#include "kernel_io.h"
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
  kSlopes,
  kKeyBiases,
  kSinks,
  kVNorm
};

inline constexpr int64_t kMaxHeads = 1024;
inline constexpr int64_t kMaxWindow = int64_t{1} << 30;

constexpr std::array<InputSpec, 16> all(ONNXTensorElementDataType cache_type) {
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
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},    // slopes
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},    // key_biases
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true},    // sinks
           {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true}}};  // v_norm
}

// What keys and values of so many heads are a cache of; blocks have block_size slots, or any number of them where that
// is -1.
inline CacheType checked_caches(const Tensor& keys, const Tensor& values, int64_t block_size, int64_t num_kv_heads,
                                int64_t head_dim) {
  const std::optional<CacheType> type = cache_type(keys.type, keys.dims.back(), head_dim);
  require(type.has_value(), "key_cache has element type ", keys.type, ", which no cache has");
  require(values.type == keys.type, "value_cache has element type ", values.type, ", key_cache has ", keys.type);
  const int64_t width = cache_row_width(*type, head_dim);
  require_shape("key_cache", keys, {-1, block_size, num_kv_heads, width});
  require_shape("value_cache", values, {keys.dims[0], keys.dims[1], num_kv_heads, width});
  return *type;
}

// A key is known by its position alone, which is its number in a row's list where no window cuts the list.
inline void require_key_biases(const Tensor& biases, int64_t num_positions, int64_t num_heads, int64_t sliding_window) {
  require_shape("key_biases", biases, {num_positions, num_heads});
  require(sliding_window == 0, "key_biases is given, and sliding_window is ", sliding_window, ", not 0");
}

}  // namespace pilotfish::attention_input
