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
#include "lowbit_multiply.cuh"
#include "lowbit_stage.cuh"
#include "lowbit_turn.cuh"

namespace pilotfish::cuda {
namespace {

/// Streams the weights of a block's units. They never change, so this starts before the predecessors have ended; until
/// then few are in flight at a time: what the predecessor still reads comes first.
template <class Format, class Shape>
__device__ void stream_weights(const ClusterParams& params, const Ring& ring, const BlockState& state) {
  const int units_before = min(2, params.num_stages), units_after = min(4, params.num_stages);
  const UnitGrid& units = params.grid.units;
  const ClusterShare share = state.share;
  const volatile int& has_started = state.has_started;
  const auto* weights = static_cast<const uint8_t*>(params.linear.weights);
  const uint64_t policy = cache_policy(params.linear.passes);
  RingPosition position, landing, emptying;
  int unit = 0, landed = 0;
  for (int batch = 0; batch < share.num_batches; ++batch) {
    const int begin = share.first_of_batch(batch), end = begin + share.pieces_of_batch(batch);
    const int first_group = units.group_of(begin);
    for (int chunk = share.first_chunk; chunk < share.first_chunk + share.num_chunks; ++chunk, ++unit) {
      if (unit >= params.num_stages) {
        barrier_wait(ring.emptied(emptying.stage), emptying.parity);
        emptying.advance(params.num_stages);
      }
      while (unit - landed >= (has_started ? units_after : units_before)) {
        barrier_wait(ring.weights_landed(landing.stage), landing.parity);
        landing.advance(params.num_stages);
        ++landed;
      }
      uint32_t target = ring.stages + position.stage * Stage<Format, Shape>::kBytes;
      const uint32_t barrier = ring.weights_landed(position.stage);
      barrier_expect(barrier, (end - begin) * Format::kPieceBytes);
      for (int piece = begin, group = first_group; piece < end; ++group) {
        const int in_group = piece - group * units.pieces_per_group;
        const int count = min(end - piece, units.pieces_of_group(group) - in_group);
        copy_bulk_expected(target, weights + (units.first_piece(group, chunk) + in_group) * Format::kPieceBytes,
                           count * Format::kPieceBytes, barrier, policy);
        target += count * Format::kPieceBytes;
        piece += count;
      }
      position.advance(params.num_stages);
    }
  }
}

template <class Format, class Shape>
__global__ void __maxnreg__(Shape::kRegisters) lowbit_cluster_kernel(const __grid_constant__ ClusterParams params) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t shared[];
  let_dependents_start();
  uint8_t* stages = shared + ClusterLayout::stages(params.num_buffers, params.linear.num_rows);
  const Ring ring = {shared_address(shared), shared_address(stages)};
  const Exchange exchange = {params, shared_address(shared) + Ring::kBarrierBytes,
                             shared_address(shared) + ClusterLayout::kBuffers};
  BlockState& state = *reinterpret_cast<BlockState*>(shared + ClusterLayout::kState);
  if (threadIdx.x == 0) {
    state.share = params.grid.share(blockIdx.x);
    state.has_started = 0;
    exchange.init(state.share, Shape::kMultiplyingWarps);
    ring.init(params.num_stages, Shape::kMultiplyingWarps, Shape::kActivationWarps);
  }
  __syncthreads();
  cluster_arrive();
  const int warp = threadIdx.x / kWarpSize;
  if (warp >= Shape::kFirstActivationWarp + Shape::kActivationWarps) {
    return;  // here for its registers
  } else if (warp == Shape::kWeightWarp) {
    if (threadIdx.x % kWarpSize == 0) stream_weights<Format, Shape>(params, ring, state);
  } else {
    wait_for_predecessors();
    if (warp >= Shape::kFirstActivationWarp) {
      *static_cast<volatile int*>(&state.has_started) = 1;
      const ClusterShare& share = state.share;
      const ChunkCycle chunks = {share.first_chunk, share.first_chunk, share.first_chunk + share.num_chunks};
      ActivationLoader<Format, Shape>(params.linear, ring, params.num_stages, chunks,
                                      warp - Shape::kFirstActivationWarp)
          .run(share.num_batches * share.num_chunks);
    } else {
      ClusterMultiplier<Format, Shape>(params, ring, exchange, stages, state).run();
    }
  }
#endif
}

// ---- the launcher ----

/// Dynamic shared memory of a block: of two on a multiprocessor the first takes more than half.
template <class Shape>
size_t cluster_shared_bytes(const DeviceLimits& limits, Turn turn) {
  const size_t most = std::min(limits.shared_bytes_per_block, limits.shared_bytes_per_sm - kReservedBytes);
  if (Shape::kBlocksPerSm == 1) return most;
  const size_t larger = limits.shared_bytes_per_sm / 2 - kReservedBytes + 2048;
  return turn == Turn::kFirst ? larger : limits.shared_bytes_per_sm - 2 * kReservedBytes - larger;
}

template <class Format, class Shape>
cudaError_t launch(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  const auto kernel = lowbit_cluster_kernel<Format, Shape>;
  const Turn turn = Shape::kBlocksPerSm == 1 ? Turn::kFirst : linear.turn;
  const size_t bytes = cluster_shared_bytes<Shape>(limits, turn);
  ClusterParams params;
  params.linear = linear;
  params.grid = cluster_grid(linear.shape, linear.plan.num_slices, linear.plan.num_blocks / linear.plan.num_slices);
  const auto num_stages = [&](int num_buffers) {
    const auto used = static_cast<size_t>(ClusterLayout::stages(num_buffers, linear.num_rows));
    return used > bytes ? 0 : std::min<int>((bytes - used) / Stage<Format, Shape>::kBytes, kMaxStages);
  };
  constexpr int kFewStages = 4;
  params.num_buffers = params.grid.most_batches() > 1 && num_stages(2) >= kFewStages ? 2 : 1;
  params.num_stages = num_stages(params.num_buffers);
  if (params.num_stages < 2) return cudaErrorInvalidConfiguration;
  int num_threads = 0;
  if (const cudaError_t status = threads_for_turn(kernel, Shape::kThreads, turn, &num_threads); status != cudaSuccess) {
    return status;
  }
  return launch_early_in_clusters(kernel, dim3(linear.plan.num_blocks), kClusterBlocks, num_threads, bytes, stream,
                                  params);
}

template <class Format>
cudaError_t launch_for_rows(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  if (linear.num_rows <= 8) return launch<Format, ClusterShape<1, 1>>(linear, limits, stream);
  if (linear.num_rows <= 16) return launch<Format, ClusterShape<2, 1>>(linear, limits, stream);
  if (linear.num_rows <= 32) return launch<Format, ClusterShape<4, 1, true>>(linear, limits, stream);
  return launch<Format, ClusterShape<8, 1, true>>(linear, limits, stream);
}

}  // namespace

cudaError_t read_num_clusters(const DeviceLimits& limits, int* num_clusters_out) {
  *num_clusters_out = 0;
  const auto kernel = lowbit_cluster_kernel<Int4, ClusterShape<1, 1>>;
  cudaFuncAttributes attributes;
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel); status != cudaSuccess) return status;
  constexpr int kBuiltFor = 90, kFewRegisters = 32;  // of a kernel whose code was left out
  if (attributes.binaryVersion != kBuiltFor || attributes.numRegs <= kFewRegisters) return cudaSuccess;
  const size_t bytes = cluster_shared_bytes<ClusterShape<1, 1>>(limits, Turn::kFirst);
  return count_clusters(kernel, kClusterBlocks, ClusterShape<1, 1>::kThreads, bytes, num_clusters_out);
}

ClusterGrid cluster_grid(const LowbitShape& shape, int num_slices, int num_parts) {
  return {unit_grid(shape), num_slices, num_parts};
}

ClusterGrid plan_clusters(const LowbitShape& shape, const DeviceLimits& limits) {
  ClusterGrid best = cluster_grid(shape, 0, 0);
  // The stream of equal runs, whose blocks are all equally busy, is slower by this much.
  int fewest_units = unit_grid(shape).num_units() * 4 / limits.num_sms / 3;
  for (int num_slices = 1; num_slices <= kClusterBlocks; num_slices *= 2) {
    const ClusterGrid grid = cluster_grid(shape, num_slices, limits.num_clusters * kClusterBlocks / num_slices);
    if (grid.num_parts == 0 || grid.units.num_pieces < grid.num_parts || grid.units.num_chunks < num_slices) continue;
    if (grid.most_units() > fewest_units) continue;
    fewest_units = grid.most_units();
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
