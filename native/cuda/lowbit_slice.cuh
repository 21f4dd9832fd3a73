// What the warps of a resident linear share: how K is cut into slices, and how a slice's pieces of the weight come into
// shared memory.
#pragma once

#include "common.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"

namespace pilotfish::cuda {

/// How K is cut: by the shape alone, never by the number of rows, so that a row's bits are the same in every pass.
struct Slices {
  int num_chunks;
  int count;

  __host__ __device__ int first_chunk(int slice) const { return slice * num_chunks / count; }
  __host__ __device__ int most_chunks() const { return (num_chunks + count - 1) / count; }
};

inline constexpr int kMaxSlices = 16;

/// Shared memory: a barrier a slice, 1 / rms a token, the block's pieces of the weight, and then what the number of
/// rows decides.
struct ResidentLayout {
  static constexpr int kScales = kMaxSlices * 8;
  static constexpr int kPieces = kScales + kMaxLinearRows * 4;
  int row_bytes;    // of a token in a slice's activations, padded: ldmatrix then meets no bank twice
  int slice_bytes;  // of a slice's activations
  int activations;
  int sums;
  int bytes;
};

struct ResidentParams {
  LowbitLinear linear;
  UnitGrid grid;
  Slices slices;
  ResidentLayout layout;
};

/// The chunks of a slice, by one warp.
template <class Format>
class SlicePieces {
 public:
  __device__ SlicePieces(const ResidentParams& params, uint8_t* shared, int slice)
      : params_(params),
        pieces_(shared + ResidentLayout::kPieces),
        barrier_(shared_address(shared) + slice * 8),
        first_(params.slices.first_chunk(slice)),
        last_(params.slices.first_chunk(slice + 1)) {}

  __device__ int first() const { return first_; }
  __device__ int last() const { return last_; }
  __device__ const uint8_t* piece(int chunk) const { return pieces_ + chunk * Format::kPieceBytes; }

  /// The weights never change: this does not wait for the predecessors.
  __device__ __forceinline__ void load() const {
    const int lane = threadIdx.x % kWarpSize;
    if (lane == 0) {
      barrier_init(barrier_, kArrivals * (last_ - first_));
      barrier_init_fence();
    }
    __syncwarp();
    const UnitGrid& grid = params_.grid;
    const int group = grid.group_of(blockIdx.x), in_group = blockIdx.x - group * grid.pieces_per_group;
    const auto* source = static_cast<const uint8_t*>(params_.linear.weights) +
                         (grid.first_piece(group, first_) + in_group) * Format::kPieceBytes;
    const size_t stride = static_cast<size_t>(grid.pieces_of_group(group)) * Format::kPieceBytes;
    [[maybe_unused]] const uint64_t policy = cache_policy(params_.linear.passes);
    uint32_t target = shared_address(piece(first_));
#pragma unroll 1
    for (int chunk = first_; chunk < last_; ++chunk, source += stride, target += Format::kPieceBytes) {
#if __CUDA_ARCH__ >= 900
      if (lane == 0) copy_bulk(target, source, Format::kPieceBytes, barrier_, policy);
#else
      for (int offset = lane * 16; offset < Format::kPieceBytes; offset += kWarpSize * 16)
        copy_16(target + offset, source + offset, 16);
      barrier_arrive_after_copies(barrier_);
#endif
    }
    __syncwarp();
  }
  __device__ __forceinline__ void wait() const { barrier_wait(barrier_, 0); }

 private:
#if __CUDA_ARCH__ >= 900
  static constexpr int kArrivals = 1;
#else
  static constexpr int kArrivals = kWarpSize;
#endif

  const ResidentParams& params_;
  const uint8_t* const pieces_;
  const uint32_t barrier_;
  const int first_, last_;
};

}  // namespace pilotfish::cuda
