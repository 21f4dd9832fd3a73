// How the copy engine of compute capability 9.0 finds the activations of a pass: a tensor map of x, copied in boxes of
// 64 columns in the order of lowbit_multiply.cuh.
#pragma once

#include <cuda.h>

#include "common.cuh"
#include "kernels.h"
#include "lowbit_multiply.cuh"

namespace pilotfish::cuda {

/// The map of linear.x for boxes of `num_tokens` rows. Rows past num_rows and columns past K read as zeros.
cudaError_t map_activations(const LowbitLinear& linear, int num_tokens, CUtensorMap* map_out);

#if __CUDA_ARCH__ >= 900
/// Starts the copy of a chunk's columns, from `column` on, of all tokens; arrives at the barrier once it has landed.
template <class Format, int kNumTokens>
__device__ __forceinline__ void copy_activations(uint32_t target, const CUtensorMap& map, int column,
                                                 uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(activation_bytes<Format>(kNumTokens))
               : "memory");
#pragma unroll
  for (int first = 0; first < Format::kChunkColumns; first += kMapColumns) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(target + first / kMapColumns * kNumTokens * kMapRowBytes),
        "l"(&map), "r"(column + first), "r"(0), "r"(barrier)
        : "memory");
  }
}
#endif

}  // namespace pilotfish::cuda
