// What a multiplying warp of a clustered low-bit linear does: its rows of every batch, their sums sent to their owners,
// and its tokens of what the block owns.
#pragma once

#include <type_traits>

#include "lowbit_cluster_exchange.cuh"
#include "lowbit_cluster_finish.cuh"
#include "lowbit_cluster_wide.cuh"
#include "lowbit_multiply.cuh"
#include "lowbit_stage.cuh"

namespace pilotfish::cuda {

/// What the warps of a block share; not registers, which they would spill.
struct BlockState {
  ClusterShare share;
  int has_started;  // the predecessors have ended
  float scales[kMaxLinearRows];
};

/// Shared memory: barriers, state, received sums, stages.
struct ClusterLayout {
  static constexpr int kState = Ring::kBarrierBytes + Exchange::kBarrierBytes;
  static constexpr int kBuffers = (kState + static_cast<int>(sizeof(BlockState)) + 127) / 128 * 128;
  __host__ __device__ static constexpr int stages(int num_buffers, int num_rows) {
    constexpr int kAlignment = 1024;  // of rows with exchanged vectors
    return (kBuffers + num_buffers * received_bytes(num_rows) + kAlignment - 1) / kAlignment * kAlignment;
  }
};

/// A warp's part of a batch: a piece, for its group's tokens.
template <class Format, class Shape>
class NarrowPart {
 public:
  __device__ bool takes_part(int num_pieces) const { return piece_ < num_pieces; }

  __device__ void multiply(const uint8_t* stage) {
    const int lane = threadIdx.x % kWarpSize;
    const ChunkView chunk = {
        stage + piece_ * Format::kPieceBytes,
        shared_address(stage) + ThisStage::kActivations + (first_tile_ * kTokenTile + lane % 8) * ThisStage::kRowBytes +
            lane / 8 * 16,
        reinterpret_cast<const float4*>(stage + ThisStage::kOffsetSums) + first_tile_ * 4 + lane % 4};
    multiply_chunk<Format, Warp>(chunk, sums_);
  }

  __device__ void send(const Exchange& exchange, int batch, int num_pieces) const {
    if (piece_ >= num_pieces) return;
    exchange.wait_for_credit(batch, piece_);
#pragma unroll
    for (int tile = 0; tile < kTilesPerPiece; ++tile) {
      exchange.send_sums(batch, piece_, tile, first_tile_, sums_[tile]);
    }
  }

 private:
  using ThisStage = Stage<Format, Shape>;
  using Warp = typename Shape::Warp;

  const int piece_ = threadIdx.x / kWarpSize % kMaxGroupPieces;
  const int first_tile_ = threadIdx.x / kWarpSize / kMaxGroupPieces * Warp::kTokenTiles;
  Sums<Warp> sums_ = {};
};

/// A warp's part of a batch: a row tile, for all tokens; the four warps of a warpgroup multiply together.
template <class Format, class Shape>
class WidePart {
 public:
  __device__ bool takes_part(int num_pieces) const { return piece_ / 2 * 2 < num_pieces; }

  __device__ void multiply(const uint8_t* stage) {
    multiply_chunk_wide<Format, Shape>(
        stage + piece_ * Format::kPieceBytes, tile_, shared_address(stage) + ThisStage::kActivations,
        reinterpret_cast<const float4*>(stage + ThisStage::kOffsetSums) + threadIdx.x % 4, sums_);
  }

  __device__ void send(const Exchange& exchange, int batch, int num_pieces) const {
    if (piece_ >= num_pieces) return;
    exchange.wait_for_credit(batch, piece_);
    exchange.send_sums(batch, piece_, tile_, 0, sums_);
  }

 private:
  using ThisStage = Stage<Format, Shape>;

  const int piece_ = threadIdx.x / kWarpSize / kTilesPerPiece;
  const int tile_ = threadIdx.x / kWarpSize % kTilesPerPiece;
  float4 sums_[Shape::kTokenTiles] = {};
};

template <class Format, class Shape>
class ClusterMultiplier {
 public:
  __device__ ClusterMultiplier(const ClusterParams& params, const Ring& ring, const Exchange& exchange,
                               const uint8_t* stages, BlockState& state)
      : params_(params),
        ring_(ring),
        exchange_(exchange),
        stages_(stages),
        share_(state.share),
        scales_(state.scales),
        warp_(threadIdx.x / kWarpSize) {}

  /// A batch is finished while the next one's stages fill, if it has a buffer of its own.
  __device__ void run() {
    leave_token_scales(params_.linear, warp_, Shape::kMultiplyingWarps, scales_);
    const int lag = min(params_.num_buffers, share_.num_batches) - 1;
#pragma unroll 1
    for (int batch = 0; batch < share_.num_batches + lag; ++batch) {
      if (batch < share_.num_batches) multiply_batch(batch);
      if (batch >= lag) finish(batch - lag);
    }
  }

 private:
  using ThisStage = Stage<Format, Shape>;
  using Part = std::conditional_t<Shape::kIsSwizzled, WidePart<Format, Shape>, NarrowPart<Format, Shape>>;

  __device__ void multiply_batch(int batch) {
    const int num_pieces = share_.pieces_of_batch(batch);
    Part part;
#pragma unroll 1
    for (int i = 0; i < share_.num_chunks; ++i) {
      barrier_wait(ring_.weights_landed(position_.stage), position_.parity);
      barrier_wait(
          ThisStage::kIsPrepared ? ring_.offsets_ready(position_.stage) : ring_.activations_landed(position_.stage),
          position_.parity);
      if (part.takes_part(num_pieces)) part.multiply(stages_ + position_.stage * ThisStage::kBytes);
      __syncwarp();
      if (threadIdx.x % kWarpSize == 0) barrier_arrive(ring_.emptied(position_.stage));
      position_.advance(params_.num_stages);
    }
    __syncwarp();
    if (batch == 0) cluster_wait();  // the other blocks' barriers are there
    part.send(exchange_, batch, num_pieces);
  }

  __device__ void finish(int batch) const {
    const int num_owned = exchange_.num_owned(share_, batch);
    if (num_owned == 0) return;
#pragma unroll 1
    for (int owned = 0; owned < num_owned; ++owned) {
      const int piece = share_.first_of_batch(batch) + owned * exchange_.num_slices() + exchange_.slice();
#pragma unroll 1
      for (int token = warp_; token < params_.linear.num_rows; token += Shape::kMultiplyingWarps) {
        finish_token(params_.linear, exchange_, batch, owned, piece, token, scales_);
      }
    }
    exchange_.wait(batch);
    exchange_.release(share_, batch);
  }

  const ClusterParams& params_;
  const Ring& ring_;
  const Exchange& exchange_;
  const uint8_t* stages_;
  const ClusterShare& share_;
  float* scales_;
  int warp_;
  RingPosition position_;
};

}  // namespace pilotfish::cuda
