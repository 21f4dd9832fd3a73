// What the warps of a low-bit linear's block share: the division of work, the ring of stages and the warps that
// fill it.
#pragma once

#include "common.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"

namespace pilotfish::cuda {

inline constexpr int kConsumerWarps = kMaxGroupPieces;  // a piece of 32 weight rows each
inline constexpr int kMaxStages = 16;
inline constexpr int kWeightWarp = kConsumerWarps;
inline constexpr int kFirstActivationWarp = kConsumerWarps + 1;

/// What the number of token tiles decides; it changes no sum's order.
template <int kTokenTilesValue>
struct Shape {
  static constexpr int kTokenTiles = kTokenTilesValue;
  /// Two blocks on a multiprocessor: the next linear's read ahead while this one's finish.
  static constexpr int kBlocksPerSm = kTokenTiles == 1 ? 2 : 1;
  /// Many tokens: the offset sums of a stage are made once; few: each warp makes them again, which is sooner.
  static constexpr bool kSharedOffsets = kTokenTiles > 1;
  /// One warp that copies activations is the limit from 16 rows on. A scheduler has 16384 registers and every fourth
  /// warp: 12 warps may have 168.
  static constexpr int kActivationWarps = kTokenTiles == 1 ? 1 : kTokenTiles == 2 ? 2 : 3;
  static constexpr int kRegisters = kTokenTiles == 1 ? 96 : 168;
  static constexpr int kThreads = (kConsumerWarps + 1 + kActivationWarps) * kWarpSize;
};

/// One stage: the weights of a unit, its activations [tokens][columns], and where shared, the offset sums
/// [block][token tile][4 lanes] float4 that multiplications start from.
template <class Format, class Shape>
struct Stage {
  static constexpr int kRowBytes = kActivationRowBytes<Format>;
  static constexpr int kActivations = kMaxGroupPieces * Format::kPieceBytes;
  static constexpr int kOffsetSums = kActivations + Shape::kTokenTiles * kTokenTile * kRowBytes;
  static constexpr int kBytes =
      kOffsetSums + (Shape::kSharedOffsets ? Format::kBlocks * Shape::kTokenTiles * 4 * 16 : 0);
  static_assert(kActivations % 16 == 0 && kOffsetSums % 16 == 0 && kBytes % 16 == 0);
};

struct Params {
  LowbitLinear linear;
  UnitGrid grid;
  int num_stages;  // ring length

  // 32 bits hold units times blocks: 10^5 by 10^2 for the largest vocabularies; a 64-bit division takes half a
  // microsecond.
  __device__ int first_unit(int block) const {
    return static_cast<uint32_t>(block) * grid.num_units() / linear.plan.num_blocks;
  }
  __device__ int block_of_unit(int unit) const {
    return (static_cast<uint32_t>(unit + 1) * linear.plan.num_blocks - 1) / grid.num_units();
  }
};

/// Shared-memory addresses of the ring; barriers are 8 bytes, one a stage.
struct Ring {
  static constexpr int kBarrierBytes = 4 * kMaxStages * 8;
  uint32_t barriers;
  uint32_t stages;

  __device__ uint32_t weights_landed(int stage) const { return barriers + stage * 8; }
  __device__ uint32_t activations_landed(int stage) const { return barriers + (kMaxStages + stage) * 8; }
  __device__ uint32_t offsets_ready(int stage) const { return barriers + (2 * kMaxStages + stage) * 8; }
  __device__ uint32_t emptied(int stage) const { return barriers + (3 * kMaxStages + stage) * 8; }

  __device__ void init(int num_stages, int num_activation_warps) const {
    for (int stage = 0; stage < num_stages; ++stage) {
#if __CUDA_ARCH__ >= 900
      barrier_init(weights_landed(stage), 1);
#else
      barrier_init(weights_landed(stage), kWarpSize);
#endif
      barrier_init(activations_landed(stage), num_activation_warps * kWarpSize);
      barrier_init(offsets_ready(stage), num_activation_warps);
      barrier_init(emptied(stage), kConsumerWarps);
    }
    barrier_init_fence();
  }
};

/// Position in the ring; the parity says how often it has gone round.
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance(int num_stages) {
    if (++stage < num_stages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// Streams the weights of a block's run of units. They never change, so this starts before the predecessors have ended;
/// but only so many units are in flight at a time: more would not come sooner, and what other blocks must read first
/// (sums, activations) would queue behind them.
template <class Format, class Shape>
__device__ void load_weights(const Params& params, const Ring& ring, int num_units) {
  constexpr int kUnitsInFlight = 2;
  const int in_flight = min(kUnitsInFlight, params.num_stages);
  const int lane = threadIdx.x % kWarpSize;
  const int begin = params.first_unit(blockIdx.x);
  int group = begin / params.grid.num_chunks, chunk = begin % params.grid.num_chunks;
  const auto* source =
      static_cast<const uint8_t*>(params.linear.weights) + params.grid.first_piece(group, chunk) * Format::kPieceBytes;
  [[maybe_unused]] const uint64_t policy = cache_policy(params.linear.passes);
  RingPosition position, landing, emptying;
  for (int unit = 0; unit < num_units; ++unit) {
    if (unit >= params.num_stages) {
      barrier_wait(ring.emptied(emptying.stage), emptying.parity);
      emptying.advance(params.num_stages);
    }
    if (unit >= in_flight) {
      barrier_wait(ring.weights_landed(landing.stage), landing.parity);
      landing.advance(params.num_stages);
    }
    const uint32_t target = ring.stages + position.stage * Stage<Format, Shape>::kBytes;
    const int num_bytes = params.grid.pieces_of_group(group) * Format::kPieceBytes;
#if __CUDA_ARCH__ >= 900
    if (lane == 0) copy_bulk(target, source, num_bytes, ring.weights_landed(position.stage), policy);
#else
    for (int offset = lane * 16; offset < num_bytes; offset += kWarpSize * 16)
      copy_16(target + offset, source + offset, 16);
    barrier_arrive_after_copies(ring.weights_landed(position.stage));
#endif
    source += num_bytes;  // units follow each other
    position.advance(params.num_stages);
    if (++chunk == params.grid.num_chunks) {
      chunk = 0;
      ++group;
    }
  }
}

/// Copies activations into stages and prepares their offset sums.
template <class Format, class Shape>
class ActivationLoader {
 public:
  __device__ ActivationLoader(const Params& params, const Ring& ring)
      : params_(params),
        ring_(ring),
        lane_(threadIdx.x % kWarpSize),
        warp_(threadIdx.x / kWarpSize - kFirstActivationWarp) {
    const int first_chunk = params.first_unit(blockIdx.x) % params.grid.num_chunks;
    column_ = first_chunk * Format::kChunkColumns + lane_ % kRowVectors * 8;
  }

  __device__ void run(int num_units) {
    // Copies run ahead of the sums, but not by the whole ring: this warp never waits for a stage that is still read.
    const int ahead = max(1, min(3, params_.num_stages - 2));
    RingPosition filling, ready, emptying;
    for (int unit = 0; unit < num_units + ahead; ++unit) {
      if (unit < num_units) {
        if (unit >= params_.num_stages) {
          barrier_wait(ring_.emptied(emptying.stage), emptying.parity);
          emptying.advance(params_.num_stages);
        }
        copy(filling.stage);
        filling.advance(params_.num_stages);
      }
      if (!Shape::kSharedOffsets || unit < ahead) continue;
      barrier_wait(ring_.activations_landed(ready.stage), ready.parity);
      sum_offsets(ready.stage);
      ready.advance(params_.num_stages);
    }
  }

 private:
  using ThisStage = Stage<Format, Shape>;
  static constexpr int kRowVectors = Format::kChunkColumns / 8;
  static constexpr int kRowsAtOnce = kWarpSize / kRowVectors * Shape::kActivationWarps;

  __device__ int first_row() const { return (warp_ * kWarpSize + lane_) / kRowVectors; }

  /// Columns past K are filled with zeros. Token rows past num_rows stay as they are: they only meet sums that nobody
  /// writes.
  __device__ void copy(int stage) {
    const int k = params_.linear.shape.in_features;
    const int valid_bytes = column_ < k ? 16 : 0;
    const auto* source = static_cast<const __half*>(params_.linear.x) + (valid_bytes ? column_ : 0) +
                         static_cast<size_t>(first_row()) * k;
    uint32_t target = ring_.stages + stage * ThisStage::kBytes + ThisStage::kActivations +
                      first_row() * ThisStage::kRowBytes + lane_ % kRowVectors * 16;
#pragma unroll 4
    for (int row = first_row(); row < params_.linear.num_rows; row += kRowsAtOnce) {
      copy_16(target, source, valid_bytes);
      source += static_cast<size_t>(kRowsAtOnce) * k;
      target += kRowsAtOnce * ThisStage::kRowBytes;
    }
    barrier_arrive_after_copies(ring_.activations_landed(stage));
    column_ += Format::kChunkColumns;
    if (column_ >= params_.grid.num_chunks * Format::kChunkColumns) column_ = lane_ % kRowVectors * 8;
  }

  /// Leaves the offset sums of a stage. All rows of a half tile are alike, so lanes 0 to 3 hold everything.
  __device__ void sum_offsets(int stage) const {
    const uint32_t at = ring_.stages + stage * ThisStage::kBytes;
    const uint32_t lane_row = at + ThisStage::kActivations + lane_ % 8 * ThisStage::kRowBytes + lane_ / 8 * 16;
#pragma unroll 2
    for (int tokens = warp_; tokens * kTokenTile < params_.linear.num_rows; tokens += Shape::kActivationWarps) {
      uint32_t x[Format::kBlocks][4];
      float4 sums[Format::kBlocks];
#pragma unroll
      for (int block = 0; block < Format::kBlocks; ++block) {
        load_matrices(x[block], lane_row + tokens * kTokenTile * ThisStage::kRowBytes + block * kBlockColumns * 2);
      }
#pragma unroll
      for (int block = 0; block < Format::kBlocks; ++block) sums[block] = offset_sums<Format>(x[block]);
      const uint32_t target = at + ThisStage::kOffsetSums + (tokens * 4 + lane_) * 16;
#pragma unroll
      for (int block = 0; block < Format::kBlocks; ++block) {
        if (lane_ < 4) store_shared(target + block * Shape::kTokenTiles * 64, sums[block]);
      }
    }
    __syncwarp();
    if (lane_ == 0) barrier_arrive(ring_.offsets_ready(stage));
  }

  const Params& params_;
  const Ring& ring_;
  int lane_;
  int warp_;    // of the activation warps; they take turns in rows and token tiles
  int column_;  // of this lane's next copies
};

}  // namespace pilotfish::cuda
