// The tensor map of activations: activation_map.cuh.
#include <cuda_runtime.h>

#include "activation_map.cuh"

namespace pilotfish::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, without linking the driver; null where it has none.
Encode find_encode() {
  constexpr unsigned kSince = 12000;  // CUDA 12.0
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince, cudaEnableDefault, &found);
  return status == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
}

}  // namespace

cudaError_t map_activations(const LowbitLinear& linear, int num_tokens, CUtensorMap* map_out) {
  static const Encode encode = find_encode();
  if (!encode) return cudaErrorNotSupported;
  const cuuint64_t columns = linear.shape.in_features, row_bytes = columns * sizeof(__half);
  const cuuint64_t size[] = {columns, static_cast<cuuint64_t>(linear.num_rows)};
  const cuuint32_t box[] = {kMapColumns, static_cast<cuuint32_t>(num_tokens)}, strides[] = {1, 1};
  const CUresult result = encode(map_out, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<void*>(linear.x), size,
                                 &row_bytes, box, strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace pilotfish::cuda
