// Low-bit linear of a large weight on devices with thread-block clusters. A cluster has a range of weight rows, each of
// its blocks a slice of K: the sums meet in shared memory, and every block finishes an eighth of the rows.
#include <algorithm>

#include "common.cuh"
#include "kernels.h"
#include "lowbit_cluster.cuh"
#include "lowbit_cluster_exchange.cuh"
#include "lowbit_cluster_multiply.cuh"
#include "lowbit_cluster_shape.cuh"
#include "lowbit_format.cuh"
#include "lowbit_turn.cuh"

namespace pilotfish::cuda {
namespace {

/// Streams the weights of a block's units, by one thread. They never change, so this starts before the predecessors
/// have ended.
template <class Format, class Shape>
__device__ void stream_weights(const ClusterParams& params, const ClusterRing& ring, uint32_t stages,
                               const BlockState& state) {
  const UnitGrid& units = params.grid.units;
  const ClusterShare share = state.share;
  const auto* weights = static_cast<const uint8_t*>(params.linear.weights);
  const uint64_t policy = cache_policy(params.linear.passes);
  RingPosition filling, emptying;
  int unit = 0;
  for (int batch = 0; batch < share.num_batches; ++batch) {
    const int begin = share.first_of_batch(batch), end = begin + share.pieces_of_batch(batch);
    const int first_group = units.group_of(begin);
    for (int chunk = share.first_chunk; chunk < share.first_chunk + share.num_chunks; ++chunk, ++unit) {
      if (unit >= params.num_stages) {
        barrier_wait(ring.emptied(emptying.stage), emptying.parity);
        emptying.advance(params.num_stages);
      }
      uint32_t target =
          stages + filling.stage * ClusterStage<Format, Shape>::kBytes + ClusterStage<Format, Shape>::kWeights;
      const uint32_t barrier = ring.weights_landed(filling.stage);
      barrier_expect(barrier, (end - begin) * Format::kPieceBytes);
      for (int piece = begin, group = first_group; piece < end; ++group) {
        const int in_group = piece - group * units.pieces_per_group;
        const int count = min(end - piece, units.pieces_of_group(group) - in_group);
        copy_bulk_expected(target, weights + (units.first_piece(group, chunk) + in_group) * Format::kPieceBytes,
                           count * Format::kPieceBytes, barrier, policy);
        target += count * Format::kPieceBytes;
        piece += count;
      }
      filling.advance(params.num_stages);
    }
  }
}

template <class Format, class Shape>
__global__ void __maxnreg__(Shape::kRegisters) lowbit_cluster_kernel(const __grid_constant__ ClusterParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared[];
  let_dependents_start();
  uint8_t* resident =
      shared + ClusterLayout::activations(params.num_buffers, params.linear.num_rows, Shape::kMostOwned);
  uint8_t* stages = resident + params.resident_bytes;
  const ClusterRing ring = {shared_address(shared), params.num_stages};
  const Exchange exchange = {params, shared_address(shared) + ClusterRing::kBarrierBytes,
                             shared_address(shared) + ClusterLayout::kBuffers, Shape::kMostOwned};
  BlockState& state = *reinterpret_cast<BlockState*>(shared + ClusterLayout::kState);
  if (threadIdx.x == 0) {
    state.share = params.grid.share(blockIdx.x, Shape::kBatchPieces);
    exchange.init(state.share, Shape::kMultiplyingWarps);
    ring.init(Shape::kMultiplyingWarps);
  }
  __syncthreads();
  cluster_arrive();
  if (threadIdx.x < Shape::kMultiplyingWarps * kWarpSize) {
    wait_for_predecessors();
    ClusterMultiplier<Format, Shape>(params, ring, exchange, shared_address(resident), stages, state).run();
  } else if (threadIdx.x % kWarpSize == 0) {
    stream_weights<Format, Shape>(params, ring, shared_address(stages), state);
  }
#endif
}

// ---- the launcher ----

size_t cluster_shared_bytes(const DeviceLimits& limits) {
  return std::min(limits.shared_bytes_per_block, limits.shared_bytes_per_sm - kReservedBytes);
}

template <class Format, class Shape>
cudaError_t launch(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  const size_t bytes = cluster_shared_bytes(limits);
  ClusterParams params;
  params.linear = linear;
  params.grid = cluster_grid(linear.shape, linear.plan.num_slices, linear.plan.num_blocks / linear.plan.num_slices);
  params.resident_bytes =
      Shape::kIsResident ? params.grid.chunks_of_busiest() * ClusterStage<Format, Shape>::kActivationBytes : 0;
  const auto num_stages = [&](int num_buffers) {
    const size_t used =
        ClusterLayout::activations(num_buffers, linear.num_rows, Shape::kMostOwned) + params.resident_bytes;
    return used > bytes ? 0 : std::min<int>((bytes - used) / ClusterStage<Format, Shape>::kBytes, kMaxStages);
  };
  constexpr int kFewStages = Shape::kUnitsAhead + 1;
  params.num_buffers = params.grid.pieces_of_busiest() > Shape::kBatchPieces && num_stages(2) > kFewStages ? 2 : 1;
  params.num_stages = num_stages(params.num_buffers);
  if (params.num_stages < kFewStages) return cudaErrorInvalidConfiguration;
  return launch_early_in_clusters(lowbit_cluster_kernel<Format, Shape>, dim3(linear.plan.num_blocks), kClusterBlocks,
                                  Shape::kThreads, bytes, stream, params);
}

template <class Format>
cudaError_t launch_for_rows(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  if (linear.num_rows <= 8) return launch<Format, ClusterShape<1>>(linear, limits, stream);
  if (linear.num_rows <= 16) return launch<Format, ClusterShape<2>>(linear, limits, stream);
  if (linear.num_rows <= 32) return launch<Format, ClusterShape<4>>(linear, limits, stream);
  return launch<Format, ClusterShape<8>>(linear, limits, stream);
}

}  // namespace

cudaError_t read_num_clusters(const DeviceLimits& limits, int* num_clusters_out) {
  *num_clusters_out = 0;
  const auto kernel = lowbit_cluster_kernel<Int4, ClusterShape<1>>;
  cudaFuncAttributes attributes;
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel); status != cudaSuccess) return status;
  constexpr int kBuiltFor = 90, kFewRegisters = 32;  // of a kernel whose code was left out
  if (attributes.binaryVersion != kBuiltFor || attributes.numRegs <= kFewRegisters) return cudaSuccess;
  return count_clusters(kernel, kClusterBlocks, ClusterShape<1>::kThreads, cluster_shared_bytes(limits),
                        num_clusters_out);
}

ClusterGrid cluster_grid(const LowbitShape& shape, int num_slices, int num_parts) {
  return {unit_grid(shape), num_slices, num_parts};
}

ClusterGrid plan_clusters(const LowbitShape& shape, const DeviceLimits& limits) {
  ClusterGrid best = cluster_grid(shape, 0, 0);
  // Work of the busiest block where the blocks of lowbit_linear.cu are all equally busy, and how much more pays.
  double least_work = 1.25 * best.units.num_pieces * best.units.num_chunks / limits.num_sms;
  for (int num_slices = kClusterBlocks; num_slices > 0; num_slices /= 2) {
    const ClusterGrid grid = cluster_grid(shape, num_slices, limits.num_clusters * kClusterBlocks / num_slices);
    if (grid.units.num_pieces < grid.num_parts || grid.units.num_chunks < num_slices) continue;
    const double work = static_cast<double>(grid.pieces_of_busiest()) * grid.chunks_of_busiest();
    if (work >= least_work) continue;
    least_work = work;
    best = grid;
  }
  return best;
}

cudaError_t launch_cluster_linear(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  const int num_slices = linear.plan.num_slices, num_blocks = linear.plan.num_blocks;
  const bool plan_fits = kClusterBlocks % num_slices == 0 && num_blocks > 0 && num_blocks % kClusterBlocks == 0 &&
                         num_blocks / num_slices <= unit_grid(linear.shape).num_pieces;
  if (!plan_fits) return cudaErrorInvalidValue;
  switch (linear.shape.format) {
    case WeightFormat::kInt4:
      return launch_for_rows<Int4>(linear, limits, stream);
    case WeightFormat::kInt4Asym:
      return launch_for_rows<Int4Asym>(linear, limits, stream);
    case WeightFormat::kF16:  // has blocks of its own
    case WeightFormat::kInt8:
      break;
  }
  return launch_for_rows<Int8>(linear, limits, stream);
}

}  // namespace pilotfish::cuda
