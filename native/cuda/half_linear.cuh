// The linear of f16 weights: half_linear.cu, half_repack.cu.
#pragma once

#include "kernels.h"

namespace pilotfish::cuda {

/// As repack_lowbit().
cudaError_t repack_half(const LowbitShape& shape, const void* packed, void* weights_out, cudaStream_t stream);

/// As launch_lowbit_linear(), whose checks have been made.
cudaError_t launch_half_linear(const LowbitLinear& linear, cudaStream_t stream);

}  // namespace pilotfish::cuda
