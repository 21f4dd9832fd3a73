// Low-bit linear for 1 to 64 rows: the weight is streamed once, its rows are the 16-row operand of the tensor cores,
// the tokens the other one. A few warps load, 8 or 16 multiply. Every sum is added in an order that only the plan
// decides.
#include <algorithm>

#include "activation_map.cuh"
#include "common.cuh"
#include "half_linear.cuh"
#include "kernels.h"
#include "lowbit_combine.cuh"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "lowbit_resident.cuh"
#include "lowbit_stage.cuh"
#include "lowbit_turn.cuh"
#include "wide_multiply.cuh"

namespace pilotfish::cuda {
namespace {

/// One multiplying warp: its piece of every row group that the block's run of units touches.
template <class Format, class Shape>
class Multiplier {
 public:
  __device__ Multiplier(const Params& params, const Ring& ring, uint8_t* shared)
      : params_(params),
        ring_(ring),
        shared_(shared),
        piece_(threadIdx.x / kWarpSize % kPieceWarps),
        share_(threadIdx.x / kWarpSize / kPieceWarps) {}

  /// Segments of the run first, one a row group; a group that other blocks share is finished after the last of them.
  /// One loop does both, so that the code of each exists once.
  __device__ void run() {
    const int num_chunks = params_.grid.num_chunks;
    const int begin = params_.first_unit(blockIdx.x), end = params_.first_unit(blockIdx.x + 1);
    const int first_group = begin / num_chunks, last_group = (end - 1) / num_chunks;
    const int num_segments = last_group - first_group + 1;
#pragma unroll 1
    for (int i = 0; i < num_segments + 2; ++i) {
      const bool is_segment = i < num_segments;
      const int group = is_segment ? first_group + i : i == num_segments ? first_group : last_group;
      const int from = max(begin, group * num_chunks), to = min(end, (group + 1) * num_chunks);
      const bool is_whole = to - from == num_chunks;
      if (is_segment) {
        multiply_segment(to - from, group, is_whole ? kWhole : from == group * num_chunks ? kBegun : kEntered);
      }
      const bool is_repeated = i == num_segments + 1 && num_segments == 1;
      if (is_whole == is_segment && !is_repeated && has_piece(group)) finish(group);
    }
  }

 private:
  using ThisStage = Stage<Format, Shape>;

  /// wgmma, which the four warps of a warpgroup issue together.
  static constexpr bool kIsWide = kHasWgmma && Shape::kTokenTiles >= 3 && !Format::kHasOffsets;

  __device__ bool has_piece(int group) const { return piece_ < params_.grid.pieces_of_group(group); }
  __device__ bool multiplies(int group) const {
    return (kIsWide ? piece_ / 4 * 4 : piece_) < params_.grid.pieces_of_group(group);
  }

  __device__ void multiply_segment(int num_units, int group, Place place) {
    const bool is_multiplied = multiplies(group);
    Sums<Shape> sums = {};
    const int lane = threadIdx.x % kWarpSize;
    for (int i = 0; i < num_units; ++i) {
      const uint8_t* stage = shared_ + Ring::kStages + position_.stage * ThisStage::kBytes;
      barrier_wait(ring_.weights_landed(position_.stage), position_.parity);
      barrier_wait(ring_.activations_landed(position_.stage), position_.parity);
      if (is_multiplied) multiply(stage, sums);
      __syncwarp();
      if (lane == 0) barrier_arrive(ring_.emptied(position_.stage));
      position_.advance(params_.num_stages);
    }
    if (has_piece(group)) leave_partial<Shape>(params_.linear, place, piece_, share_ * Shape::kRowTiles, sums);
  }
  __device__ __forceinline__ void multiply(const uint8_t* stage, Sums<Shape>& sums) const {
    const uint8_t* const piece = stage + piece_ * Format::kPieceBytes;
    const uint32_t activations = shared_address(stage) + ThisStage::kActivations;
    if constexpr (kIsWide) {
      multiply_wide_chunk<Format, Shape::kRowTiles, Shape::kTokenTiles>(piece, share_ * Shape::kRowTiles, activations,
                                                                        nullptr, sums);
    } else {
      multiply_chunk<Format, Shape>({piece, lane_activations(activations), share_ * Shape::kRowTiles}, sums);
    }
  }

  __device__ void finish(int group) const {
    const int first_unit = group * params_.grid.num_chunks;
    auto* const scales = reinterpret_cast<float2(*)[4]>(shared_ + Ring::kScales);
    combine<Shape>(params_.linear, params_.block_of_unit(first_unit),
                   params_.block_of_unit(first_unit + params_.grid.num_chunks - 1),
                   group * params_.grid.pieces_per_group + piece_, piece_, share_,
                   scales[piece_ + share_ * kPieceWarps]);
  }

  const Params& params_;
  const Ring& ring_;
  uint8_t* shared_;
  int piece_;  // of the row group
  int share_;  // of its row tiles, later of its token tiles
  RingPosition position_;
};

template <class Format, class Shape>
__global__ void __maxnreg__(Shape::kRegisters) lowbit_linear_kernel(const __grid_constant__ Params params) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const Ring ring = {shared_address(shared), shared_address(shared) + Ring::kStages};
  let_dependents_start();
  if (threadIdx.x == 0) ring.init(params.num_stages, Shape::kMultiplyingWarps, Shape::kActivationWarps);
  __syncthreads();
  const int warp = threadIdx.x / kWarpSize;
  const int num_units = params.first_unit(blockIdx.x + 1) - params.first_unit(blockIdx.x);
  if (warp >= Shape::kWeightWarp) {
    if constexpr (Shape::kMovesRegisters) leave_registers<Shape::kLoadingRegisters>();
    if (warp == Shape::kWeightWarp) {
      load_weights<Format, Shape>(params, ring, num_units);
    } else if (warp < Shape::kFirstActivationWarp + Shape::kActivationWarps) {
      wait_for_predecessors();
      load_activations<Format, Shape>(params, ring, num_units);
    }
  } else {
    if constexpr (Shape::kMovesRegisters) take_registers<Shape::kMultiplyingRegisters>();
    wait_for_predecessors();
    Multiplier<Format, Shape>(params, ring, shared).run();
  }
}

// ---- the launcher ----

/// Dynamic shared memory of a block.
template <class Format, class Shape>
size_t shared_bytes(const DeviceLimits& limits, Turn turn) {
  const size_t most = std::min(limits.shared_bytes_per_block, limits.shared_bytes_per_sm - kReservedBytes);
  if (Shape::kBlocksPerSm == 1) return most;
  constexpr size_t kStage = Stage<Format, Shape>::kBytes;
  const size_t half = limits.shared_bytes_per_sm / 2 - kReservedBytes;
  const size_t stages = (half - Ring::kStages) / kStage;
  const size_t larger = std::min(most, Ring::kStages + (stages + 1) * kStage);
  return turn == Turn::kFirst ? larger : limits.shared_bytes_per_sm - 2 * kReservedBytes - larger;
}

template <class Format, class Shape>
cudaError_t launch(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  const auto kernel = lowbit_linear_kernel<Format, Shape>;
  const Turn turn = Shape::kBlocksPerSm == 1 ? Turn::kFirst : linear.turn;
  const size_t bytes = shared_bytes<Format, Shape>(limits, turn);
  Params params;
  params.linear = linear;
  params.grid = unit_grid<Format>(linear.shape);
  params.num_stages =
      static_cast<int>(std::min<size_t>((bytes - Ring::kStages) / Stage<Format, Shape>::kBytes, kMaxStages));
  if (params.num_stages < 1) return cudaErrorInvalidConfiguration;
  bool has_maps = false;
  if (const cudaError_t status = starts_early(kernel, &has_maps); status != cudaSuccess) return status;
  if (has_maps) {
    const cudaError_t status = map_activations(linear, Shape::kTokens, &params.activations);
    if (status != cudaSuccess) return status;
  }
  int num_threads = 0;
  if (const cudaError_t status = threads_for_turn(kernel, Shape::kThreads, turn, &num_threads); status != cudaSuccess) {
    return status;
  }
  return launch_early(kernel, dim3(linear.plan.num_blocks), num_threads, bytes, stream, params);
}

template <class Format>
cudaError_t launch_for_rows(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  constexpr int kRowTiles = Format::kHasOffsets ? 2 : 1;  // sums of columns are made once a piece
  if (linear.num_rows <= 8) return launch<Format, Shape<1, 2>>(linear, limits, stream);
  if (linear.num_rows <= 16) return launch<Format, Shape<2, 2>>(linear, limits, stream);
  // As many rows as chains of a few sequences have: 4 or 8 of 5 drafted tokens.
  if constexpr (!Format::kHasOffsets) {
    if (linear.num_rows <= 24) return launch<Format, Shape<3, kRowTiles>>(linear, limits, stream);
    if (linear.num_rows > 32 && linear.num_rows <= 48)
      return launch<Format, Shape<6, kRowTiles>>(linear, limits, stream);
  }
  if (linear.num_rows <= 32) return launch<Format, Shape<4, kRowTiles>>(linear, limits, stream);
  return launch<Format, Shape<8, kRowTiles>>(linear, limits, stream);
}

bool is_valid(const LowbitLinear& linear, const DeviceLimits& limits) {
  const LowbitShape& shape = linear.shape;
  const bool shape_fits = shape.in_features > 0 && shape.in_features % 8 == 0 && shape.out_features > 0;
  const bool gate_fits = linear.activation == Activation::kNone || shape.out_features % kPieceRows == 0;
  const bool rows_fit = linear.num_rows >= 1 && linear.num_rows <= kMaxLinearRows;
  const bool next_fits = !linear.next.halves || linear.output_type == OutputType::kF32;
  const bool plan_fits =
      linear.plan.is_resident ||
      (linear.plan.num_blocks >= 1 && linear.plan.num_blocks <= std::min(limits.num_sms, unit_grid(shape).num_units()));
  return shape_fits && gate_fits && rows_fit && next_fits && plan_fits;
}

}  // namespace

cudaError_t launch_lowbit_linear(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  if (!is_valid(linear, limits)) return cudaErrorInvalidValue;
  if (linear.shape.format == WeightFormat::kF16) return launch_half_linear(linear, stream);
  if (linear.plan.is_resident) return launch_resident_linear(linear, limits, stream);
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
