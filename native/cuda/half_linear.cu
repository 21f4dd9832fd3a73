// Linear of f16 weights for 1 to 64 rows: the weight is nearly all of the traffic, so it goes from memory straight into
// the registers that the tensor cores read. A block has 32 weight rows, its warps a slice of K each, whose sums are
// added in order.
#include "common.cuh"
#include "half_format.cuh"
#include "half_linear.cuh"
#include "lowbit_combine.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kWarps = kHalfSlices;
constexpr int kThreads = kWarps * kWarpSize;

/// What the number of token tiles decides; it changes no sum's order.
template <int kTokenTilesValue>
struct HalfShape {
  static constexpr int kTokenTiles = kTokenTilesValue;
  static constexpr int kAhead = kTokenTiles == 1 ? 4 : 3;  // blocks of 32 columns in registers
  static constexpr int kBlocksPerSm = kTokenTiles <= 2 ? 2 : 1;
  static constexpr int kSharedBytes = kWarps * kTilesPerPiece * kTokenTiles * kWarpSize * 16;
};

/// A lane's operands of 32 columns.
template <class Shape>
struct Operands {
  uint4 weights[2][kTilesPerPiece];  // by step
  uint4 tokens[Shape::kTokenTiles];
};

/// One warp's slice of K.
template <class Shape>
class HalfSlice {
 public:
  __device__ HalfSlice(const LowbitLinear& linear, const UnitGrid& grid) : linear_(linear) {
    const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
    const int first_chunk = warp * grid.num_chunks / kWarps, last_chunk = (warp + 1) * grid.num_chunks / kWarps;
    const int group = grid.group_of(blockIdx.x);
    const size_t piece = grid.first_piece(group, first_chunk) + blockIdx.x - group * grid.pieces_per_group;
    weights_ = static_cast<const uint8_t*>(linear.weights) + piece * Half::kPieceBytes + lane * 16;
    chunk_stride_ = static_cast<size_t>(grid.pieces_of_group(group)) * Half::kPieceBytes;
    column_ = first_chunk * Half::kChunkColumns + lane % 4 * 8;
    tokens_ = static_cast<const __half*>(linear.x) + static_cast<size_t>(lane / 4) * linear.shape.in_features + column_;
    num_blocks_ = (last_chunk - first_chunk) * Half::kBlocks;
  }

  __device__ int num_blocks() const { return num_blocks_; }

  __device__ __forceinline__ void load_weights(Operands<Shape>& operands, int block) const {
    if (block >= num_blocks_) return;
    const uint8_t* source =
        weights_ + block / Half::kBlocks * chunk_stride_ + block % Half::kBlocks * 2 * Half::kStepBytes;
#pragma unroll
    for (int i = 0; i < 2 * kTilesPerPiece; ++i) {
      const int step = i / kTilesPerPiece, tile = i % kTilesPerPiece;
      operands.weights[step][tile] =
          __ldcs(reinterpret_cast<const uint4*>(source + tile * Half::kTileBytes + step * Half::kStepBytes));
    }
  }

  /// Columns past K and tokens past num_rows are zeros.
  __device__ __forceinline__ void load_tokens(Operands<Shape>& operands, int block) const {
    if (block >= num_blocks_) return;
    const int k = linear_.shape.in_features, lane = threadIdx.x % kWarpSize;
    const bool has_columns = column_ + block * kBlockColumns < k;
#pragma unroll
    for (int i = 0; i < Shape::kTokenTiles; ++i) {
      const __half* source = tokens_ + static_cast<size_t>(i) * kTokenTile * k + block * kBlockColumns;
      const bool exists = has_columns && i * kTokenTile + lane / 4 < linear_.num_rows;
      operands.tokens[i] = exists ? __ldcg(reinterpret_cast<const uint4*>(source)) : uint4{};
    }
  }

 private:
  const LowbitLinear& linear_;
  const uint8_t* weights_;  // this lane's
  const __half* tokens_;
  size_t chunk_stride_;
  int column_;
  int num_blocks_;
};

template <class Shape>
__device__ __forceinline__ void multiply_block(const Operands<Shape>& operands,
                                               float4 (&sums)[kTilesPerPiece][Shape::kTokenTiles]) {
#pragma unroll
  for (int i = 0; i < 2 * Shape::kTokenTiles * kTilesPerPiece; ++i) {
    const int step = i / (Shape::kTokenTiles * kTilesPerPiece), tokens = i / kTilesPerPiece % Shape::kTokenTiles;
    const uint4 &a = operands.weights[step][i % kTilesPerPiece], &b = operands.tokens[tokens];
    float4& sum = sums[i % kTilesPerPiece][tokens];
    sum = multiply({a.x, a.y, a.z, a.w}, step ? b.z : b.x, step ? b.w : b.y, sum);
  }
}

/// Adds the slices' sums of a token tile in order and writes them.
template <class Shape>
__device__ void finish(const LowbitLinear& linear, const float4* slices, int token_tile) {
  const float2 scales = input_scales(linear, token_tile);
  float4 totals[kTilesPerPiece] = {};
#pragma unroll
  for (int i = 0; i < kWarps * kTilesPerPiece; ++i) {
    add(totals[i % kTilesPerPiece],
        slices[(i * Shape::kTokenTiles + token_tile) * kWarpSize + threadIdx.x % kWarpSize]);
  }
  write_tile(linear, blockIdx.x, token_tile, scales, totals);
}

template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kBlocksPerSm)
    half_linear_kernel(const __grid_constant__ LowbitLinear linear, const __grid_constant__ UnitGrid grid) {
  extern __shared__ __align__(128) float4 slices[];  // [warps][row tiles][token tiles][lanes]
  let_dependents_start();
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const HalfSlice<Shape> slice(linear, grid);
  Operands<Shape> ring[Shape::kAhead];
#pragma unroll
  for (int i = 0; i < Shape::kAhead; ++i) slice.load_weights(ring[i], i);  // they never change
  wait_for_predecessors();
#pragma unroll
  for (int i = 0; i < Shape::kAhead; ++i) slice.load_tokens(ring[i], i);
  float4 sums[kTilesPerPiece][Shape::kTokenTiles] = {};
#pragma unroll 1
  for (int first = 0; first < slice.num_blocks(); first += Shape::kAhead) {
#pragma unroll
    for (int i = 0; i < Shape::kAhead; ++i) {
      if (first + i < slice.num_blocks()) multiply_block(ring[i], sums);
      slice.load_weights(ring[i], first + i + Shape::kAhead);
      slice.load_tokens(ring[i], first + i + Shape::kAhead);
    }
  }
#pragma unroll
  for (int i = 0; i < kTilesPerPiece * Shape::kTokenTiles; ++i) {
    slices[(warp * kTilesPerPiece * Shape::kTokenTiles + i) * kWarpSize + lane] =
        sums[i / Shape::kTokenTiles][i % Shape::kTokenTiles];
  }
  __syncthreads();
  if (warp < Shape::kTokenTiles && warp * kTokenTile < linear.num_rows) finish<Shape>(linear, slices, warp);
}

template <class Shape>
cudaError_t launch(const LowbitLinear& linear, cudaStream_t stream) {
  const UnitGrid grid = unit_grid<Half>(linear.shape);
  return launch_early(half_linear_kernel<Shape>, dim3(grid.num_pieces), kThreads, Shape::kSharedBytes, stream, linear,
                      grid);
}

}  // namespace

cudaError_t launch_half_linear(const LowbitLinear& linear, cudaStream_t stream) {
  if (linear.num_rows <= 8) return launch<HalfShape<1>>(linear, stream);
  if (linear.num_rows <= 16) return launch<HalfShape<2>>(linear, stream);
  if (linear.num_rows <= 32) return launch<HalfShape<4>>(linear, stream);
  return launch<HalfShape<8>>(linear, stream);
}

}  // namespace pilotfish::cuda
