// A resident linear of more than eight rows: a slice a warp, or two one after the other, a chunk at a time with all
// tokens.
#pragma once

#include <algorithm>

#include "lowbit_epilogue.cuh"
#include "lowbit_slice.cuh"

namespace pilotfish::cuda {

template <int kTokenTilesValue>
struct ManyRowsShape {
  static constexpr int kTokenTiles = kTokenTilesValue;
  static constexpr int kRowTiles = kTilesPerPiece;
  static constexpr int kMostWarps = kTokenTiles == 2 ? kMaxSlices : kMaxSlices / 2;  // as registers allow

  /// Warps of a block; each has slice warp, warp + count, ...
  __host__ __device__ static int num_warps(const Slices& slices) {
    const int rounds = (slices.count + kMostWarps - 1) / kMostWarps;
    return (slices.count + rounds - 1) / rounds;
  }
};

/// Behind the weight: each warp's activations, which the sums of its slice replace, [token][32 columns] f32, and the
/// sums of the rounds that are done.
template <class Format, class Shape>
ResidentLayout many_rows_layout(const Slices& slices, int num_rows) {
  constexpr int kTokens = Shape::kTokenTiles * kTokenTile, kSumBytes = kTokens * SliceSums::kSliceFloats * 4;
  static_assert(ResidentLayout::kPieces % kMapRowBytes == 0 && Format::kPieceBytes % kMapRowBytes == 0 &&
                activation_bytes<Format>(kTokens) % kMapRowBytes == 0 && kSumBytes % kMapRowBytes == 0);
  ResidentLayout layout = {};
  layout.slice_bytes = std::max(activation_bytes<Format>(kTokens), kSumBytes);
  layout.activations = ResidentLayout::kPieces + slices.num_chunks * Format::kPieceBytes;
  layout.sums = layout.activations + Shape::num_warps(slices) * layout.slice_bytes;
  layout.bytes = layout.sums + num_rows * kPieceRows * 4;
  return layout;
}

template <class Format, class Shape>
class ManyRows {
 public:
  __device__ ManyRows(const ResidentParams& params, uint8_t* shared)
      : params_(params),
        shared_(shared),
        warp_(uniform_warp()),
        lane_(threadIdx.x % kWarpSize),
        num_warps_(Shape::num_warps(params.slices)),
        activations_(shared + params.layout.activations + warp_ * params.layout.slice_bytes) {}

  __device__ __forceinline__ void run() const {
    for (int slice = warp_; slice < params_.slices.count; slice += num_warps_) pieces(slice).load();
    wait_for_predecessors();
    leave_scales();
#pragma unroll 1
    for (int first = 0; first < params_.slices.count; first += num_warps_) {
      if (first + warp_ < params_.slices.count) {
        Sums<Shape> sums = {};
        multiply(first + warp_, sums);
        leave(sums);
      }
      __syncthreads();
      add(first);
      __syncthreads();
    }
  }

 private:
  static constexpr int kTokens = Shape::kTokenTiles * kTokenTile;

  __device__ SlicePieces<Format> pieces(int slice) const { return {params_, BlockPlace<1>(params_), shared_, slice}; }
  __device__ float* scales() const { return reinterpret_cast<float*>(shared_ + ResidentLayout::kScales); }

  __device__ __forceinline__ void leave_scales() const {
    const LowbitLinear& linear = params_.linear;
    if (!linear.input_norm.squares) return;
#pragma unroll 1
    for (int first = warp_ * kTokenTile; first < linear.num_rows; first += num_warps_ * kTokenTile) {
      const float scale = input_scale<4>(linear, min(first + lane_ / 4, linear.num_rows - 1));
      if (lane_ % 4 == 0) scales()[first + lane_ / 4] = scale;
    }
  }

  __device__ __forceinline__ void multiply(int slice, Sums<Shape>& sums) const {
    const SlicePieces<Format> weights = pieces(slice);
    weights.wait();
    const uint32_t lane_row = lane_activations(shared_address(activations_));
#pragma unroll 1
    for (int chunk = weights.first(); chunk < weights.last(); ++chunk) {
      copy_chunk(chunk);
      commit_copies();
      wait_for_copies<0>();
      __syncwarp();
      multiply_chunk<Format, Shape>({weights.piece(chunk), lane_row}, sums);
      __syncwarp();
    }
  }

  /// Columns past K are filled with zeros; token rows past num_rows stay as they are.
  __device__ __forceinline__ void copy_chunk(int chunk) const {
    constexpr int kRowVectors = Format::kChunkColumns / 8, kRowsAtOnce = kWarpSize / kRowVectors;
    const int k = params_.linear.shape.in_features, column = chunk * Format::kChunkColumns + lane_ % kRowVectors * 8;
    const int valid_bytes = column < k ? 16 : 0;
    int row = lane_ / kRowVectors;
    const __half* source = static_cast<const __half*>(params_.linear.x) + row * k + (valid_bytes ? column : 0);
    const uint32_t target = shared_address(activations_);
#pragma unroll 4
    for (; row < params_.linear.num_rows; row += kRowsAtOnce) {
      copy_16(target + activation_place(row, lane_ % kRowVectors, kTokens), source, valid_bytes);
      source += kRowsAtOnce * k;
    }
  }

  __device__ __forceinline__ void leave(const Sums<Shape>& sums) const {
    constexpr int kTokenFloats = SliceSums::kSliceFloats;
    auto* const place = reinterpret_cast<float*>(activations_) + lane_ % 4 * 2 * kTokenFloats + lane_ / 4;
#pragma unroll
    for (int i = 0; i < kTilesPerPiece * Shape::kTokenTiles; ++i) {
      const int tile = i % kTilesPerPiece, tokens = i / kTilesPerPiece;
      float* const at = place + tokens * kTokenTile * kTokenFloats + tile * kTileRows;
      const float4& sum = sums[tile][tokens];
      at[0] = sum.x, at[8] = sum.z, at[kTokenFloats] = sum.y, at[kTokenFloats + 8] = sum.w;
    }
  }

  /// Adds the sums of a round's slices in their order; the last round writes the results. A warp a token, a lane a
  /// column.
  __device__ __forceinline__ void add(int first_slice) const {
    const LowbitLinear& linear = params_.linear;
    const OutputColumn column(linear, BlockPlace<1>(params_).piece);
    auto* const totals = reinterpret_cast<float*>(shared_ + params_.layout.sums) + lane_;
    const auto* const sums = reinterpret_cast<const float*>(shared_ + params_.layout.activations) + lane_;
    const int stride = params_.layout.slice_bytes / 4, count = min(num_warps_, params_.slices.count - first_slice);
    const bool is_last = first_slice + num_warps_ >= params_.slices.count;
    OutputInputs inputs;
    if (is_last) {
      column.read_constants(inputs);
      column.read_residual(min(warp_, linear.num_rows - 1), inputs);
    }
#pragma unroll 1
    for (int token = warp_; token < linear.num_rows; token += num_warps_) {
      OutputInputs next = inputs;  // what it reads takes longer than a token
      if (is_last) column.read_residual(min(token + num_warps_, linear.num_rows - 1), next);
      float total = first_slice == 0 ? 0.0f : totals[token * kPieceRows];
      const float* at = sums + token * SliceSums::kSliceFloats;
#pragma unroll 8
      for (int i = 0; i < count; ++i, at += stride) total = __fadd_rn(total, *at);
      if (is_last) {
        const float scale = linear.input_norm.squares ? scales()[token] : 1.0f;
        column.write(column.places(token), total, scale, inputs);
      } else {
        totals[token * kPieceRows] = total;
      }
      inputs = next;
    }
  }

  const ResidentParams& params_;
  uint8_t* const shared_;
  const int warp_, lane_, num_warps_;
  uint8_t* const activations_;
};

}  // namespace pilotfish::cuda
