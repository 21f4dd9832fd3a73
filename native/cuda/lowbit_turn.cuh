// Linears that follow each other take turns. Two may share a multiprocessor: while one finishes, the next one's weights
// are read ahead. But two blocks of one linear must not, or that multiprocessor has twice the work of the others. So
// one takes more than half of the shared memory, the next more than half of the registers.
#pragma once

#include <algorithm>

#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

inline constexpr size_t kReservedBytes = 1024;  // by the driver, a block

/// Threads of a block whose registers leave no room for another of its kind.
template <class Kernel>
cudaError_t threads_for_turn(Kernel kernel, int num_threads, Turn turn, int* threads_out) {
  constexpr int kSchedulers = 4, kRegistersOfScheduler = 16384, kUnit = 8;
  *threads_out = num_threads;
  if (turn == Turn::kFirst) return cudaSuccess;
  cudaFuncAttributes attributes;
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel); status != cudaSuccess) return status;
  const int warp_registers = (attributes.numRegs + kUnit - 1) / kUnit * kUnit * kWarpSize;
  const int most_warps = kSchedulers * (kRegistersOfScheduler / warp_registers);
  *threads_out = std::max(num_threads, (most_warps / 2 + 1) * kWarpSize);
  return cudaSuccess;
}

}  // namespace pilotfish::cuda
