// Linears that follow each other take turns. Two may share a multiprocessor: while one finishes, the next one's weights
// are read ahead. But two blocks of one linear must not, or that multiprocessor has twice the work of the others. So
// one takes more than half of the shared memory, the next more than half of the registers.
#pragma once

#include <algorithm>

#include "common.cuh"
#include "kernels.h"

namespace pilotfish::cuda {

inline constexpr size_t kReservedBytes = 1024 + 256;  // by the driver, a block; static shared memory

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

/// Clusters of such blocks that the current device runs at once.
template <class Kernel>
cudaError_t count_clusters(Kernel kernel, int cluster_blocks, int num_threads, size_t shared_bytes, int* count_out) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(cluster_blocks);
  config.blockDim = dim3(num_threads);
  config.dynamicSmemBytes = shared_bytes;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster_blocks;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (status != cudaSuccess) return status;
  return cudaOccupancyMaxActiveClusters(count_out, kernel, &config);
}

}  // namespace pilotfish::cuda
