// What a multiplying warp of a clustered low-bit linear does: its rows of every batch, their sums sent to their owners,
// and its tokens of what the block owns.
#pragma once

#include "lowbit_cluster_exchange.cuh"
#include "lowbit_cluster_finish.cuh"
#include "lowbit_cluster_shape.cuh"
#include "lowbit_cluster_wide.cuh"
#include "lowbit_stage.cuh"

namespace pilotfish::cuda {

/// Barriers of the ring, by their shared-memory addresses.
struct ClusterRing {
  static constexpr int kBarrierBytes = 3 * kMaxStages * 8;
  uint32_t barriers;
  int num_stages;

  __device__ uint32_t weights_landed(int stage) const { return barriers + stage * 8; }
  __device__ uint32_t activations_ready(int stage) const { return barriers + (kMaxStages + stage) * 8; }
  __device__ uint32_t emptied(int stage) const { return barriers + (2 * kMaxStages + stage) * 8; }

  __device__ void init(int num_multiplying_warps) const {
    for (int stage = 0; stage < num_stages; ++stage) {
      barrier_init(weights_landed(stage), 1);
      barrier_init(activations_ready(stage), num_multiplying_warps);
      barrier_init(emptied(stage), num_multiplying_warps);
    }
    barrier_init_fence();
  }
};

/// What the warps of a block share; not registers, which they would spill.
struct BlockState {
  ClusterShare share;
  float scales[kMaxLinearRows];
};

/// Shared memory: barriers, state, received sums, resident activations, stages.
struct ClusterLayout {
  static constexpr int kState = ClusterRing::kBarrierBytes + Exchange::kBarrierBytes;
  static constexpr int kBuffers = (kState + static_cast<int>(sizeof(BlockState)) + 127) / 128 * 128;
  /// Rounded up: rows with exchanged vectors begin where 1024 bytes do.
  __host__ __device__ static constexpr int activations(int num_buffers, int num_rows, int most_owned) {
    return (kBuffers + num_buffers * received_bytes(num_rows, most_owned) + 1023) / 1024 * 1024;
  }
};

/// Brings activations into stages, all multiplying warps together.
template <class Format, class Shape>
class ActivationCopies {
 public:
  __device__ ActivationCopies(const LowbitLinear& linear, const ClusterShare& share, const ClusterRing& ring,
                              uint32_t stages)
      : linear_(linear),
        share_(share),
        ring_(ring),
        stages_(stages),
        units_left_(share.num_batches * share.num_chunks),
        chunk_(0) {}

  /// Starts the copies of the next unit, once its stage is empty; the first stages are.
  __device__ void start_next() {
    if (units_left_ > 0) {
      if (has_wrapped_) {
        barrier_wait(ring_.emptied(filling_.stage), emptied_parity_);
      }
      copy(chunk_, stages_ + filling_.stage * Stage::kBytes);
      --units_left_;
      advance();
    }
    commit_copies();
  }

  /// The whole slice at once, for all multiplying warps.
  __device__ void bring_all(uint32_t target) const {
#pragma unroll 1
    for (int chunk = 0; chunk < share_.num_chunks; ++chunk) copy(chunk, target + chunk * Stage::kActivationBytes);
    commit_copies();
    wait_for_copies<0>();
    fence_for_tensor_cores();
    constexpr int kBarrier = 1;
    asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(Shape::kMultiplyingWarps * kWarpSize) : "memory");
  }

  /// All but the last copies of this thread have landed: for one more unit they are there.
  __device__ void announce_next() {
    wait_for_copies<Shape::kUnitsAhead - 1>();
    fence_for_tensor_cores();
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) barrier_arrive(ring_.activations_ready(ready_.stage));
    ready_.advance(ring_.num_stages);
  }

 private:
  using Stage = ClusterStage<Format, Shape>;
  static constexpr int kRowVectors = Format::kChunkColumns / 8;

  /// Columns past K are filled with zeros. Token rows past num_rows stay as they are: they only meet sums that nobody
  /// writes.
  __device__ void copy(int chunk, uint32_t target) const {
    const int vector = threadIdx.x % kRowVectors, k = linear_.shape.in_features;
    const int column = (share_.first_chunk + chunk) * Format::kChunkColumns + vector * 8;
    const int valid_bytes = column < k ? 16 : 0;
    const auto* source = static_cast<const __half*>(linear_.x) + (valid_bytes ? column : 0);
    for (int row = threadIdx.x / kRowVectors; row < linear_.num_rows;
         row += Shape::kMultiplyingWarps * kWarpSize / kRowVectors) {
      copy_16(target + Stage::vector_at(row, vector), source + static_cast<size_t>(row) * k, valid_bytes);
    }
  }
  __device__ void advance() {
    if (++chunk_ == share_.num_chunks) chunk_ = 0;
    if (has_wrapped_ && filling_.stage + 1 == ring_.num_stages) emptied_parity_ ^= 1;
    filling_.advance(ring_.num_stages);
    has_wrapped_ = has_wrapped_ || filling_.stage == 0;
  }

  const LowbitLinear& linear_;
  const ClusterShare& share_;
  const ClusterRing& ring_;
  uint32_t stages_;
  int units_left_;
  int chunk_;
  bool has_wrapped_ = false;
  uint32_t emptied_parity_ = 0;
  RingPosition filling_, ready_;
};

/// One multiplying warp: a row tile of every batch, for all tokens; the four of a warpgroup multiply together.
template <class Format, class Shape>
class ClusterMultiplier {
 public:
  __device__ ClusterMultiplier(const ClusterParams& params, const ClusterRing& ring, const Exchange& exchange,
                               uint32_t resident, const uint8_t* stages, BlockState& state)
      : params_(params),
        ring_(ring),
        exchange_(exchange),
        resident_(resident),
        stages_(stages),
        share_(state.share),
        scales_(state.scales),
        copies_(params.linear, state.share, ring, shared_address(stages)),
        piece_(threadIdx.x / kWarpSize / kTilesPerPiece),
        tile_(threadIdx.x / kWarpSize % kTilesPerPiece) {}

  /// A batch is finished while the next one's stages fill, if it has a buffer of its own.
  __device__ void run() {
    if constexpr (Shape::kIsResident) {
      copies_.bring_all(resident_);
    } else {
      for (int i = 0; i < Shape::kUnitsAhead; ++i) copies_.start_next();
    }
    leave_token_scales(params_.linear, threadIdx.x / kWarpSize, Shape::kMultiplyingWarps, scales_);
    if constexpr (!Shape::kIsResident) copies_.announce_next();
    const int lag = min(params_.num_buffers, share_.num_batches) - 1;
#pragma unroll 1
    for (int batch = 0; batch < share_.num_batches + lag; ++batch) {
      if (batch < share_.num_batches) multiply_batch(batch);
      if (batch >= lag) finish(batch - lag);
    }
  }

 private:
  using Stage = ClusterStage<Format, Shape>;

  __device__ void multiply_batch(int batch) {
    const int num_pieces = share_.pieces_of_batch(batch);
    const bool takes_part = piece_ / 2 * 2 < num_pieces;  // the whole warpgroup
    float4 sums[Shape::kTokenTiles] = {};
#pragma unroll 1
    for (int i = 0; i < share_.num_chunks; ++i) {
      if constexpr (!Shape::kIsResident) {
        copies_.start_next();
        copies_.announce_next();
        barrier_wait(ring_.activations_ready(position_.stage), position_.parity);
      }
      barrier_wait(ring_.weights_landed(position_.stage), position_.parity);
      if (takes_part) {
        const uint8_t* stage = stages_ + position_.stage * Stage::kBytes;
        const uint32_t activations =
            Shape::kIsResident ? resident_ + i * Stage::kActivationBytes : shared_address(stage);
        multiply_chunk_wide<Format, Shape>(stage + Stage::kWeights + piece_ * Format::kPieceBytes, tile_, activations,
                                           sums);
      }
      __syncwarp();
      if (threadIdx.x % kWarpSize == 0) barrier_arrive(ring_.emptied(position_.stage));
      position_.advance(ring_.num_stages);
    }
    __syncwarp();
    if (batch == 0) cluster_wait();  // the other blocks' barriers are there
    if (piece_ >= num_pieces) return;
    exchange_.wait_for_credit(batch, piece_);
    exchange_.send_sums(batch, piece_, tile_, 0, sums);
  }

  __device__ void finish(int batch) const {
    const int num_owned = exchange_.num_owned(share_, batch);
    if (num_owned == 0) return;
#pragma unroll 1
    for (int i = threadIdx.x / kWarpSize; i < num_owned * params_.linear.num_rows; i += Shape::kMultiplyingWarps) {
      const int owned = i / params_.linear.num_rows, token = i % params_.linear.num_rows;
      const int piece = share_.first_of_batch(batch) + owned * exchange_.num_slices() + exchange_.slice();
      finish_token(params_.linear, exchange_, batch, owned, piece, token, scales_);
    }
    exchange_.wait(batch);
    exchange_.release(share_, batch);
  }

  const ClusterParams& params_;
  const ClusterRing& ring_;
  const Exchange& exchange_;
  uint32_t resident_;  // activations
  const uint8_t* stages_;
  const ClusterShare& share_;
  float* scales_;
  ActivationCopies<Format, Shape> copies_;
  int piece_, tile_;
  RingPosition position_;
};

}  // namespace pilotfish::cuda
