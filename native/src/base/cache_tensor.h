// A cache as a tensor of ONNX Runtime, [num_blocks, block_size, num_kv_heads, width]: f16 and f32 are elements that it
// knows, all else is bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "base/cache_type.h"
#include "base/ort_abi.h"

namespace pilotfish {

constexpr ONNXTensorElementDataType element_type(CacheType type) {
  if (type == CacheType::kF16) return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
  return type == CacheType::kF32 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT : ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
}

// Elements of one head of a slot, the tensor's last axis.
constexpr int64_t cache_row_width(CacheType type, int64_t head_dim) {
  if (element_type(type) != ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8) return head_dim;
  return static_cast<int64_t>(cache_row_bytes(type, head_dim));
}

// The type whose tensors have such elements and that width, else one that has such elements.
constexpr std::optional<CacheType> cache_type(ONNXTensorElementDataType element, int64_t width, int64_t head_dim) {
  std::optional<CacheType> nearest;
  for (const CacheType type : kCacheTypes) {
    if (element_type(type) != element) continue;
    if (cache_row_width(type, head_dim) == width) return type;
    if (!nearest) nearest = type;
  }
  return nearest;
}

}  // namespace pilotfish
