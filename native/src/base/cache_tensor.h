// The element type of a cache as a tensor of ONNX Runtime.
#pragma once

#include <array>
#include <optional>

#include "base/cache_type.h"
#include "base/ort_abi.h"

namespace pilotfish {

constexpr ONNXTensorElementDataType element_type(CacheType type) {
  constexpr std::array kElements{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
                                 ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8};
  return kElements[static_cast<size_t>(type)];
}

constexpr std::optional<CacheType> cache_type(ONNXTensorElementDataType element) {
  for (const CacheType type : kCacheTypes) {
    if (element_type(type) == element) return type;
  }
  return std::nullopt;
}

}  // namespace pilotfish
