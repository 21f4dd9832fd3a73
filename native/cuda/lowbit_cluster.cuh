// The low-bit linear whose blocks exchange sums inside clusters: lowbit_cluster.cu. Compute capability 9.0.
#pragma once

#include "kernels.h"
#include "lowbit_cluster_grid.cuh"

namespace pilotfish::cuda {

/// Clusters of kClusterBlocks blocks, one a multiprocessor, that the current device runs at once; 0 where this library
/// has no code for them.
cudaError_t read_num_clusters(const DeviceLimits& limits, int* num_clusters_out);

/// The division of a weight over `num_clusters` clusters.
ClusterGrid cluster_grid(const LowbitShape& shape, int num_slices, int num_parts);

/// The division that keeps the busiest block's work smallest; num_slices 0 where clusters do not pay.
ClusterGrid plan_clusters(const LowbitShape& shape, const DeviceLimits& limits);

/// As launch_lowbit_linear(), whose checks have been made.
cudaError_t launch_cluster_linear(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream);

}  // namespace pilotfish::cuda
