// What the warps of a resident linear share: how K is cut into slices, and how a slice's pieces of the weight come into
// shared memory.
#pragma once

#include "common.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"

namespace pilotfish::cuda {

inline constexpr int kMaxSlices = 16;

/// How K is cut: by the shape alone, never by the number of rows, so that a row's bits are the same in every pass.
struct Slices {
  int num_chunks;
  int count;
  uint32_t reciprocal;  // 2^16 / count, rounded up

  static Slices of(int num_chunks, int count) {
    return {num_chunks, count, ((1u << 16) + count - 1) / static_cast<uint32_t>(count)};
  }
  /// slice * num_chunks / count without a division: exact up to 273 chunks, more than shared memory holds.
  __device__ int first_chunk(int slice) const { return slice * num_chunks * reciprocal >> 16; }
  __host__ __device__ int per_block(int num_blocks) const { return (count + num_blocks - 1) / num_blocks; }
  int most_chunks() const { return (num_chunks + count - 1) / count; }
};

/// Shared memory: a barrier a slice, 1 / rms a token, the block's pieces of the weight, and then what the number of
/// rows decides.
struct ResidentLayout {
  static constexpr int kScales = kMaxSlices * 8;
  static constexpr int kPieces = kScales + kMaxLinearRows * 4;
  int row_bytes;    // of a token in a slice's activations, padded: ldmatrix then meets no bank twice
  int slice_bytes;  // of a slice's activations
  int activations;
  int sums;
  int inputs;  // OtherInputs, where more than one row has them
  int bytes;
};

struct ResidentParams {
  LowbitLinear linear;
  UnitGrid grid;
  Slices slices;
  ResidentLayout layout;
};

/// The warp's index in the block. The shuffle tells the compiler that all lanes have the same, so that it computes
/// addresses once a warp.
__device__ __forceinline__ int uniform_warp() { return __shfl_sync(~0u, threadIdx.x / kWarpSize, 0); }

/// Of a resident linear's block (x, g): a piece of row group g, which kBlocks blocks share, each some of the slices.
template <int kBlocks>
struct BlockPlace {
  __device__ explicit BlockPlace(const ResidentParams& params)
      : in_group(blockIdx.x / kBlocks),
        piece(blockIdx.y * params.grid.pieces_per_group + in_group),
        rank(blockIdx.x % kBlocks),
        first_slice(rank * params.slices.per_block(kBlocks)),
        num_slices(min(params.slices.per_block(kBlocks), params.slices.count - first_slice)) {}

  int in_group, piece, rank, first_slice, num_slices;
};

/// The chunks of a slice, by one warp.
template <class Format>
class SlicePieces {
 public:
  template <int kBlocks>
  __device__ SlicePieces(const ResidentParams& params, const BlockPlace<kBlocks>& block, uint8_t* shared, int slice)
      : params_(params),
        in_group_(block.in_group),
        pieces_(shared + ResidentLayout::kPieces - params.slices.first_chunk(block.first_slice) * Format::kPieceBytes),
        barrier_(shared_address(shared) + (slice - block.first_slice) * 8),
        first_(params.slices.first_chunk(slice)),
        last_(params.slices.first_chunk(slice + 1)) {}

  __device__ int first() const { return first_; }
  __device__ int last() const { return last_; }
  __device__ const uint8_t* piece(int chunk) const { return pieces_ + chunk * Format::kPieceBytes; }

  /// The weights never change: this does not wait for the predecessors.
  __device__ __forceinline__ void load() const {
    const UnitGrid& grid = params_.grid;
    const int num_pieces = grid.pieces_of_group(blockIdx.y);
    const uint32_t index = piece_of_first_chunk() + first_ * num_pieces;
    const uint32_t stride = num_pieces * Format::kPieceBytes;
    const uint8_t* source = static_cast<const uint8_t*>(params_.linear.weights) + size_t{index} * Format::kPieceBytes;
    uint32_t target = shared_address(piece(first_));
    if (is_elected()) {
      barrier_init(barrier_, kArrivals * (last_ - first_));
      barrier_init_fence();
#if __CUDA_ARCH__ >= 900
      const uint64_t policy = cache_policy(params_.linear.passes);
#pragma unroll 1
      for (int chunk = first_; chunk < last_; ++chunk, source += stride, target += Format::kPieceBytes) {
        copy_bulk(target, source, Format::kPieceBytes, barrier_, policy);
      }
#endif
    }
    __syncwarp();
#if __CUDA_ARCH__ < 900
    for (int chunk = first_; chunk < last_; ++chunk, source += stride, target += Format::kPieceBytes) {
      for (int offset = threadIdx.x % kWarpSize * 16; offset < Format::kPieceBytes; offset += kWarpSize * 16)
        copy_16(target + offset, source + offset, 16);
      barrier_arrive_after_copies(barrier_);
    }
    __syncwarp();
#endif
  }
  __device__ __forceinline__ void wait() const { barrier_wait(barrier_, 0); }

 private:
#if __CUDA_ARCH__ >= 900
  static constexpr int kArrivals = 1;
#else
  static constexpr int kArrivals = kWarpSize;
#endif

  /// One lane of the warp, the same each time.
  __device__ static bool is_elected() {
#if __CUDA_ARCH__ >= 900
    uint32_t elected;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xFFFFFFFF; selp.u32 %0, 1, 0, p; }" : "=r"(elected));
    return elected;
#else
    return threadIdx.x % kWarpSize == 0;
#endif
  }
  __device__ uint32_t piece_of_first_chunk() const {
    return blockIdx.y * params_.grid.pieces_per_group * params_.grid.num_chunks + in_group_;
  }

  const ResidentParams& params_;
  const int in_group_;
  const uint8_t* const pieces_;
  const uint32_t barrier_;
  const int first_, last_;
};

}  // namespace pilotfish::cuda
