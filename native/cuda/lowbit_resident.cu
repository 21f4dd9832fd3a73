// Low-bit linear of a small weight: a block has 32 rows, all in shared memory before the predecessor has ended, and its
// eight warps divide K. Their sums are added in order; no block waits for another.
#include <algorithm>

#include "common.cuh"
#include "kernels.h"
#include "lowbit_combine.cuh"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "lowbit_resident.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBarrierBytes = 128;
static_assert(kWarps * 8 <= kBarrierBytes);

template <int kTokenTilesValue>
struct ResidentShape {
  static constexpr int kTokenTiles = kTokenTilesValue;
  static constexpr bool kSharedOffsets = false;
  /// One tile: a warp's activations are there at once; more: one chunk after the other.
  static constexpr bool kAllChunks = kTokenTiles == 1;
};

/// Shared memory: a barrier a warp; the block's piece of the weight, later the warps' sums; activations.
template <class Format, class Shape>
struct Layout {
  int num_chunks;
  int num_rows;

  static constexpr int kSumBytes = kWarps * kTilesPerPiece * Shape::kTokenTiles * kWarpSize * 16;

  __host__ __device__ int activations() const {
    return kBarrierBytes +
           (num_chunks * Format::kPieceBytes > kSumBytes ? num_chunks * Format::kPieceBytes : kSumBytes);
  }
  /// Of one chunk.
  __host__ __device__ int activation_bytes() const {
    return (Shape::kAllChunks ? num_rows : Shape::kTokenTiles * kTokenTile) * kActivationRowBytes<Format>;
  }
  __host__ __device__ int bytes() const {
    return activations() + (Shape::kAllChunks ? num_chunks : kWarps) * activation_bytes();
  }
};

/// One warp's part: its chunks of the block's piece.
template <class Format, class Shape>
class Slice {
 public:
  __device__ Slice(const LowbitLinear& linear, const UnitGrid& grid, uint8_t* shared)
      : linear_(linear),
        grid_(grid),
        layout_{grid.num_chunks, linear.num_rows},
        shared_(shared),
        at_(shared_address(shared)),
        warp_(threadIdx.x / kWarpSize),
        lane_(threadIdx.x % kWarpSize),
        first_(first_chunk(grid, warp_)),
        last_(first_chunk(grid, warp_ + 1)) {}

  __host__ __device__ static int first_chunk(const UnitGrid& grid, int warp) { return warp * grid.num_chunks / kWarps; }

  /// The weights never change, so this does not wait for the predecessors.
  __device__ void load_weights() const {
    if (first_ == last_) return;
    const uint32_t barrier = at_ + warp_ * 8;
    if (lane_ == 0) {
      barrier_init(barrier, kArrivals * (last_ - first_));
      barrier_init_fence();
    }
    __syncwarp();
    const int group = grid_.group_of(blockIdx.x), in_group = blockIdx.x - group * grid_.pieces_per_group;
    [[maybe_unused]] const uint64_t policy = cache_policy(linear_.passes);
    for (int chunk = first_; chunk < last_; ++chunk) {
      const auto* source = static_cast<const uint8_t*>(linear_.weights) +
                           (grid_.first_piece(group, chunk) + in_group) * Format::kPieceBytes;
      const uint32_t target = at_ + kBarrierBytes + chunk * Format::kPieceBytes;
#if __CUDA_ARCH__ >= 900
      if (lane_ == 0) copy_bulk(target, source, Format::kPieceBytes, barrier, policy);
#else
      for (int offset = lane_ * 16; offset < Format::kPieceBytes; offset += kWarpSize * 16)
        copy_16(target + offset, source + offset, 16);
      barrier_arrive_after_copies(barrier);
#endif
    }
  }

  __device__ void multiply(Sums<Shape>& sums) const {
    if (first_ == last_) return;
    if constexpr (Shape::kAllChunks) {
      for (int chunk = first_; chunk < last_; ++chunk) copy_activations(chunk);
      finish_copies();
    }
    barrier_wait(at_ + warp_ * 8, 0);
#pragma unroll 1
    for (int chunk = first_; chunk < last_; ++chunk) {
      if constexpr (!Shape::kAllChunks) {
        copy_activations(chunk);
        finish_copies();
      }
      // A tile's rows past the last token repeat it: their sums are nobody's.
      const int row = Shape::kAllChunks ? min(lane_ % 8, linear_.num_rows - 1) : lane_ % 8;
      const ChunkView view = {shared_ + kBarrierBytes + chunk * Format::kPieceBytes,
                              activations(chunk) + row * kActivationRowBytes<Format> + lane_ / 8 * 16, nullptr};
      multiply_chunk<Format, Shape>(view, sums);
      if constexpr (!Shape::kAllChunks) __syncwarp();
    }
  }

  /// Where the sums of a warp lie, once the weights are not needed any more.
  __device__ float4* sums_of(int warp) const {
    return reinterpret_cast<float4*>(shared_ + kBarrierBytes) + warp * kTilesPerPiece * Shape::kTokenTiles * kWarpSize +
           lane_;
  }

  __device__ void leave(const Sums<Shape>& sums) const {
    float4* target = sums_of(warp_);
#pragma unroll
    for (int i = 0; i < kTilesPerPiece * Shape::kTokenTiles; ++i) {
      target[i * kWarpSize] = sums[i / Shape::kTokenTiles][i % Shape::kTokenTiles];
    }
  }

  /// A token tile's sums of all warps, in order.
  __device__ void add(int token_tile, float4 (&totals)[kTilesPerPiece]) const {
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      if (first_chunk(grid_, warp) == first_chunk(grid_, warp + 1)) continue;
#pragma unroll
      for (int tile = 0; tile < kTilesPerPiece; ++tile) {
        pilotfish::cuda::add(totals[tile], sums_of(warp)[(tile * Shape::kTokenTiles + token_tile) * kWarpSize]);
      }
    }
  }

 private:
#if __CUDA_ARCH__ >= 900
  static constexpr int kArrivals = 1;
#else
  static constexpr int kArrivals = kWarpSize;
#endif

  __device__ uint32_t activations(int chunk) const {
    return at_ + layout_.activations() + (Shape::kAllChunks ? chunk : warp_) * layout_.activation_bytes();
  }

  /// Columns past K are filled with zeros; token rows past num_rows stay as they are.
  __device__ void copy_activations(int chunk) const {
    constexpr int kRowVectors = Format::kChunkColumns / 8;
    const int k = linear_.shape.in_features, column = chunk * Format::kChunkColumns + lane_ % kRowVectors * 8;
    const int valid_bytes = column < k ? 16 : 0;
    const auto* source = static_cast<const __half*>(linear_.x) + (valid_bytes ? column : 0);
    const uint32_t target = activations(chunk) + lane_ % kRowVectors * 16;
#pragma unroll 4
    for (int row = lane_ / kRowVectors; row < linear_.num_rows; row += kWarpSize / kRowVectors) {
      copy_16(target + row * kActivationRowBytes<Format>, source + static_cast<size_t>(row) * k, valid_bytes);
    }
  }
  __device__ static void finish_copies() {
    commit_copies();
    wait_for_copies<0>();
    __syncwarp();
  }

  const LowbitLinear& linear_;
  const UnitGrid& grid_;
  const Layout<Format, Shape> layout_;
  uint8_t* shared_;
  uint32_t at_;
  int warp_;
  int lane_;
  int first_, last_;
};

template <class Format, class Shape>
__global__ void __launch_bounds__(kThreads)
    resident_linear_kernel(const __grid_constant__ LowbitLinear linear, const __grid_constant__ UnitGrid grid) {
  extern __shared__ __align__(128) uint8_t shared[];
  let_dependents_start();
  const Slice<Format, Shape> slice(linear, grid, shared);
  slice.load_weights();
  wait_for_predecessors();
  const int warp = threadIdx.x / kWarpSize;
  float2 scales = {1.0f, 1.0f};
  if (warp * kTokenTile < linear.num_rows) scales = input_scales(linear, warp);
  Sums<Shape> sums = {};
  slice.multiply(sums);
  __syncthreads();
  slice.leave(sums);
  __syncthreads();
  if (warp * kTokenTile >= linear.num_rows) return;
  float4 totals[kTilesPerPiece] = {};
  slice.add(warp, totals);
  write_tile(linear, blockIdx.x, warp, scales, totals);
}

template <class Format>
int resident_bytes(const LowbitShape& shape) {
  return kBarrierBytes + unit_grid<Format>(shape).num_chunks * Format::kPieceBytes;
}

int resident_bytes(const LowbitShape& shape) {
  switch (shape.format) {
    case WeightFormat::kInt4:
      return resident_bytes<Int4>(shape);
    case WeightFormat::kInt4Asym:
      return resident_bytes<Int4Asym>(shape);
    case WeightFormat::kF16:  // never resident
    case WeightFormat::kInt8:
      break;
  }
  return resident_bytes<Int8>(shape);
}

/// Rows [first, first + count) of a linear as one of its own.
LowbitLinear rows_of(const LowbitLinear& linear, int first, int count) {
  LowbitLinear part = linear;
  const int columns =
      linear.activation == Activation::kSwiGlu ? linear.shape.out_features / 2 : linear.shape.out_features;
  const size_t out = static_cast<size_t>(first) * columns, in = static_cast<size_t>(first) * linear.shape.in_features;
  const size_t element = linear.output_type == OutputType::kF16 ? 2 : 4;
  part.num_rows = count;
  part.x = static_cast<const __half*>(linear.x) + in;
  part.out = static_cast<uint8_t*>(linear.out) + out * element;
  if (linear.residual) part.residual = static_cast<const uint8_t*>(linear.residual) + out * element;
  if (linear.next.halves) part.next.halves = static_cast<__half*>(linear.next.halves) + out;
  if (linear.next.squares) part.next.squares += static_cast<size_t>(first) * num_square_parts(columns);
  if (linear.input_norm.squares) {
    part.input_norm.squares += static_cast<size_t>(first) * num_square_parts(linear.shape.in_features);
  }
  return part;
}

template <class Format, class Shape>
cudaError_t launch(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  const UnitGrid grid = unit_grid<Format>(linear.shape);
  const Layout<Format, Shape> layout = {grid.num_chunks, linear.num_rows};
  if (static_cast<size_t>(layout.bytes()) > limits.shared_bytes_per_block) {  // fewer rows at a time, same bits
    const int half = linear.num_rows / 2;
    if (half == 0) return cudaErrorInvalidConfiguration;
    const cudaError_t status = launch_resident_linear(rows_of(linear, 0, half), limits, stream);
    if (status != cudaSuccess) return status;
    return launch_resident_linear(rows_of(linear, half, linear.num_rows - half), limits, stream);
  }
  return launch_early(resident_linear_kernel<Format, Shape>, dim3(grid.num_pieces), kThreads, layout.bytes(), stream,
                      linear, grid);
}

template <class Format>
cudaError_t launch_for_rows(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  if (linear.num_rows <= 8) return launch<Format, ResidentShape<1>>(linear, limits, stream);
  if (linear.num_rows <= 16) return launch<Format, ResidentShape<2>>(linear, limits, stream);
  if (linear.num_rows <= 32) return launch<Format, ResidentShape<4>>(linear, limits, stream);
  return launch<Format, ResidentShape<8>>(linear, limits, stream);
}

}  // namespace

bool fits_resident(const LowbitShape& shape, const DeviceLimits& limits) {
  constexpr int kReservedBytes = 1024;          // by the driver, a block
  constexpr int kMostBlocksPerSm = 3;           // as registers allow
  constexpr size_t kMostWeightBytes = 8 << 20;  // one of 9.4 MB is faster as a stream: NOTES.md
  if (lowbit_weight_bytes(shape) > kMostWeightBytes) return false;
  const size_t block_bytes = resident_bytes(shape) + kReservedBytes;
  const size_t blocks_per_sm = std::min<size_t>(limits.shared_bytes_per_sm / 2 / block_bytes, kMostBlocksPerSm);
  return static_cast<size_t>(unit_grid(shape).num_pieces) <= blocks_per_sm * limits.num_sms;
}

cudaError_t launch_resident_linear(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  switch (linear.shape.format) {
    case WeightFormat::kInt4:
      return launch_for_rows<Int4>(linear, limits, stream);
    case WeightFormat::kInt4Asym:
      return launch_for_rows<Int4Asym>(linear, limits, stream);
    case WeightFormat::kF16:  // never resident
    case WeightFormat::kInt8:
      break;
  }
  return launch_for_rows<Int8>(linear, limits, stream);
}

}  // namespace pilotfish::cuda
