// Low-bit linear for 1 to 64 rows: the weight is streamed once, its rows are the 16-row operand of the tensor cores, the
// tokens the 8-wide one. One warp loads, eight multiply. Every sum is added in an order that only the plan decides.
#include "common.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kConsumerWarps = 8;
constexpr int kThreads = (kConsumerWarps + 1) * kWarpSize;  // the last warp loads
constexpr int kTokenTile = 8;                               // tokens of one mma
constexpr int kMaxStages = 16;
constexpr int kBarrierBytes = 2 * kMaxStages * 8;
constexpr int kReductionBarrier = 1;

template <class Format>
struct Stage {
  // A row of activations is padded by 16 bytes: ldmatrix then meets no bank twice.
  static constexpr int kRowBytes = Format::kChunkColumns * 2 + 16;
  static constexpr int kWeightBytes = kConsumerWarps * Format::kPieceBytes;
  __host__ __device__ static constexpr int slice_bytes(int token_tiles) { return token_tiles * kTokenTile * kRowBytes; }
  __host__ __device__ static constexpr int bytes(int token_tiles, int warp_slices) {
    return kWeightBytes + warp_slices * slice_bytes(token_tiles);
  }
};

struct Params {
  LowbitLinear linear;
  int row_pieces;  // pieces of 32 weight rows
  int num_chunks;  // of K
  int num_stages;  // ring length
};

/// The part of the weight that one consumer warp multiplies.
struct WarpShare {
  int row_piece;
  int slice_in_block;
  int first_chunk;
  int num_chunks;
};

__device__ WarpShare share_of_warp(const Params& params, int warp) {
  const LowbitPlan plan = params.linear.plan;
  const int split = blockIdx.x % plan.splits;
  const int pieces_per_block = kConsumerWarps / plan.warp_slices;
  const int num_slices = plan.splits * plan.warp_slices;
  WarpShare share;
  share.slice_in_block = warp / pieces_per_block;
  share.row_piece = blockIdx.x / plan.splits * pieces_per_block + warp % pieces_per_block;
  const int slice = split * plan.warp_slices + share.slice_in_block;
  share.first_chunk = slice * params.num_chunks / num_slices;
  const int end = (slice + 1) * params.num_chunks / num_slices;
  share.num_chunks = share.row_piece < params.row_pieces ? end - share.first_chunk : 0;
  return share;
}

/// Chunks that the longest slice of this block has.
__device__ int rounds_of_block(const Params& params) {
  const LowbitPlan plan = params.linear.plan;
  const int num_slices = plan.splits * plan.warp_slices;
  int rounds = 0;
  for (int i = 0; i < plan.warp_slices; ++i) {
    const int slice = blockIdx.x % plan.splits * plan.warp_slices + i;
    rounds = max(rounds, (slice + 1) * params.num_chunks / num_slices - slice * params.num_chunks / num_slices);
  }
  return rounds;
}

// ---- the loading warp ----

template <class Format, int kTokenTiles>
class Loader {
 public:
  __device__ Loader(const Params& params, uint32_t ring, uint32_t filled)
      : params_(params), ring_(ring), filled_(filled), lane_(threadIdx.x % kWarpSize) {
    share_ = share_of_warp(params, lane_ % kConsumerWarps);
    stage_bytes_ = Stage<Format>::bytes(kTokenTiles, params.linear.plan.warp_slices);
  }

  __device__ void load_weights(int round, int stage) const {
    const uint32_t target = ring_ + stage * stage_bytes_;
    const size_t piece = static_cast<size_t>(share_.row_piece) * params_.num_chunks + share_.first_chunk + round;
    const auto* source = static_cast<const uint8_t*>(params_.linear.weights) + piece * Format::kPieceBytes;
#if __CUDA_ARCH__ >= 900
    if (lane_ < kConsumerWarps && round < share_.num_chunks) {
      copy_bulk(target + lane_ * Format::kPieceBytes, source, Format::kPieceBytes, filled_ + stage * 8);
    }
#else
    for (int warp = 0; warp < kConsumerWarps; ++warp) {
      const auto* warp_source = reinterpret_cast<const uint8_t*>(
          __shfl_sync(~0u, reinterpret_cast<unsigned long long>(source), warp));
      if (round >= __shfl_sync(~0u, share_.num_chunks, warp)) continue;
      for (int offset = lane_ * 16; offset < Format::kPieceBytes; offset += kWarpSize * 16) {
        copy_16(target + warp * Format::kPieceBytes + offset, warp_source + offset, 16);
      }
    }
#endif
  }

  /// Columns past K are filled with zeros. Token rows past num_rows stay as they are: they only meet sums that nobody
  /// writes.
  __device__ void load_activations(int round, int stage) const {
    constexpr int kVectors = Format::kChunkColumns / 8;
    const int k = params_.linear.shape.in_features;
    const auto* x = static_cast<const __half*>(params_.linear.x);
    const int num_vectors = params_.linear.num_rows * kVectors;
    const int pieces_per_block = kConsumerWarps / params_.linear.plan.warp_slices;
    for (int slice = 0; slice < params_.linear.plan.warp_slices; ++slice) {
      const int first_chunk = __shfl_sync(~0u, share_.first_chunk, slice * pieces_per_block);
      const uint32_t target = ring_ + stage * stage_bytes_ + Stage<Format>::kWeightBytes +
                              slice * Stage<Format>::slice_bytes(kTokenTiles);
      for (int i = lane_; i < num_vectors; i += kWarpSize) {
        const int row = i / kVectors;
        const int column = (first_chunk + round) * Format::kChunkColumns + i % kVectors * 8;
        const int valid_bytes = column < k ? 16 : 0;
        copy_16(target + row * Stage<Format>::kRowBytes + i % kVectors * 16,
                x + (valid_bytes ? static_cast<size_t>(row) * k + column : 0), valid_bytes);
      }
    }
    barrier_arrive_after_copies(filled_ + stage * 8);
  }

 private:
  const Params& params_;
  uint32_t ring_;
  uint32_t filled_;
  int lane_;
  int stage_bytes_;
  WarpShare share_;
};

/// Weights never change, so the ring is filled with them before the predecessors have ended; activations follow.
template <class Format, int kTokenTiles>
__device__ void load(const Params& params, uint32_t ring, uint32_t filled, uint32_t emptied) {
  const Loader<Format, kTokenTiles> loader(params, ring, filled);
  const int rounds = rounds_of_block(params);
  const int ahead = min(rounds, params.num_stages);
  for (int round = 0; round < ahead; ++round) loader.load_weights(round, round);
  wait_for_predecessors();
  for (int round = 0; round < ahead; ++round) loader.load_activations(round, round);
  int stage = 0;
  uint32_t parity = 0;
  for (int round = ahead; round < rounds; ++round) {
    barrier_wait(emptied + stage * 8, parity);
    loader.load_weights(round, stage);
    loader.load_activations(round, stage);
    if (++stage == params.num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
#ifdef LATE_TRIGGER
  let_dependents_start();
#endif
}

// ---- the multiplying warps ----

template <int kTokenTiles>
using Sums = float4[kTilesPerPiece][kTokenTiles];

/// Adds one chunk of columns in ascending order; a half of it (one 16-byte vector a lane and row tile) at a time.
template <class Format, int kTokenTiles>
__device__ void multiply_chunk(const uint8_t* piece, uint32_t activations, Sums<kTokenTiles>& sums) {
  using ScaleVector = typename Format::ScaleVector;
  const int lane = threadIdx.x % kWarpSize;
  const uint32_t lane_row = activations + lane % 8 * Stage<Format>::kRowBytes + lane / 8 * 16;
  constexpr int kBlocksPerVector = Format::kBlocks / 2;
  alignas(16) uint32_t words[kTilesPerPiece][4];
  alignas(16) __half scales[kTilesPerPiece][2][Format::kBlocks];
#pragma unroll
  for (int tile = 0; tile < kTilesPerPiece; ++tile) {
    *reinterpret_cast<ScaleVector*>(&scales[tile][0][0]) =
        reinterpret_cast<const ScaleVector*>(piece + kIntegerBytes)[tile * 8 + lane / 4];
  }
#pragma unroll
  for (int block = 0; block < Format::kBlocks; ++block) {
    if (block % kBlocksPerVector == 0) {
#pragma unroll
      for (int tile = 0; tile < kTilesPerPiece; ++tile) {
        *reinterpret_cast<uint4*>(&words[tile][0]) =
            reinterpret_cast<const uint4*>(piece)[(tile * 2 + block / kBlocksPerVector) * kWarpSize + lane];
      }
    }
    uint32_t weights[kTilesPerPiece][2][4];
#pragma unroll
    for (int tile = 0; tile < kTilesPerPiece; ++tile) {
      const __half2 low = __half2half2(scales[tile][0][block]);
      const __half2 high = __half2half2(scales[tile][1][block]);
      Format::unpack(weights[tile][0], words[tile], block % kBlocksPerVector * 2, low, high);
      Format::unpack(weights[tile][1], words[tile], block % kBlocksPerVector * 2 + 1, low, high);
    }
#pragma unroll
    for (int tokens = 0; tokens < kTokenTiles; ++tokens) {
      uint32_t x[4];  // 32 columns of 8 tokens
      load_matrices(x, lane_row + tokens * kTokenTile * Stage<Format>::kRowBytes + block * kBlockColumns * 2);
#pragma unroll
      for (int tile = 0; tile < kTilesPerPiece; ++tile) {
        multiply_add(sums[tile][tokens], weights[tile][0], x[0], x[1]);
        multiply_add(sums[tile][tokens], weights[tile][1], x[2], x[3]);
      }
    }
  }
}

__device__ __forceinline__ void add(float4& sum, const float4& other) {
  sum.x += other.x;
  sum.y += other.y;
  sum.z += other.z;
  sum.w += other.w;
}

/// Adds the K slices of a block in order; the warps of slice 0 end up with the sums.
template <int kTokenTiles>
__device__ void add_slices(int warp_slices, int warp, float4* exchange, Sums<kTokenTiles>& sums) {
  constexpr int kVectors = kTilesPerPiece * kTokenTiles;
  const int lane = threadIdx.x % kWarpSize;
  const int pieces_per_block = kConsumerWarps / warp_slices;
  const auto meet = [] { asm volatile("bar.sync %0, %1;" ::"n"(kReductionBarrier), "n"(kConsumerWarps * kWarpSize) : "memory"); };
  meet();  // the ring is no longer read: its memory carries the sums
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    exchange[(warp * kVectors + i) * kWarpSize + lane] = sums[i / kTokenTiles][i % kTokenTiles];
  }
  meet();
  if (warp >= pieces_per_block) return;
  for (int slice = 1; slice < warp_slices; ++slice) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      add(sums[i / kTokenTiles][i % kTokenTiles],
          exchange[((slice * pieces_per_block + warp) * kVectors + i) * kWarpSize + lane]);
    }
  }
}

/// Hands this block's sums to the last of the blocks that share them; true in that one, with all splits added in order.
template <int kTokenTiles>
__device__ bool add_splits(const LowbitLinear& linear, int row_piece, Sums<kTokenTiles>& sums) {
  constexpr int kVectors = kTilesPerPiece * kTokenTiles;
  const int lane = threadIdx.x % kWarpSize;
  const int splits = linear.plan.splits;
  const int own = blockIdx.x % splits;
  auto* partials = reinterpret_cast<float4*>(linear.partials) +
                   static_cast<size_t>(row_piece) * splits * kVectors * kWarpSize + lane;
  const auto is_used = [&](int i) { return i % kTokenTiles * kTokenTile + lane % 4 * 2 < linear.num_rows; };
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (is_used(i)) __stcg(partials + (own * kVectors + i) * kWarpSize, sums[i / kTokenTiles][i % kTokenTiles]);
  }
  __syncwarp();
  uint32_t earlier = 0;
  if (lane == 0) {
    __threadfence();
    earlier = atomicAdd(linear.arrivals + row_piece, 1u);
    __threadfence();
  }
  earlier = __shfl_sync(~0u, earlier, 0);
  if (earlier != static_cast<uint32_t>(splits - 1)) return false;
  if (lane == 0) linear.arrivals[row_piece] = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) sums[i / kTokenTiles][i % kTokenTiles] = {};
  for (int split = 0; split < splits; ++split) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (is_used(i)) add(sums[i / kTokenTiles][i % kTokenTiles], __ldcg(partials + (split * kVectors + i) * kWarpSize));
    }
  }
  return true;
}

// ---- the epilogue ----

__device__ void write_output(const LowbitLinear& linear, int token, int row, int num_columns, float value) {
  const size_t index = static_cast<size_t>(token) * num_columns + row;
  if (linear.output_type == OutputType::kF16) {
    if (linear.residual) value += __half2float(__ldcg(static_cast<const __half*>(linear.residual) + index));
    static_cast<__half*>(linear.out)[index] = __float2half_rn(value);
  } else {
    if (linear.residual) value += __ldcg(static_cast<const float*>(linear.residual) + index);
    static_cast<float*>(linear.out)[index] = value;
  }
}

__device__ __forceinline__ float swiglu(float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; }

template <int kTokenTiles>
__device__ void finish(const LowbitLinear& linear, int row_piece, const Sums<kTokenTiles>& sums) {
  const int lane = threadIdx.x % kWarpSize;
  const int num_features = linear.shape.out_features;
  const bool gated = linear.activation == Activation::kSwiGlu;
  const int first_row = row_piece * kPieceRows + lane / 4;
#pragma unroll
  for (int tokens = 0; tokens < kTokenTiles; ++tokens) {
#pragma unroll
    for (int corner = 0; corner < 4; ++corner) {  // x, y, z, w of the fragment
      const int token = tokens * kTokenTile + lane % 4 * 2 + corner % 2;
      if (token >= linear.num_rows) continue;
      float values[kTilesPerPiece];
#pragma unroll
      for (int tile = 0; tile < kTilesPerPiece; ++tile) {
        const float4 sum = sums[tile][tokens];
        values[tile] = corner == 0 ? sum.x : corner == 1 ? sum.y : corner == 2 ? sum.z : sum.w;
        const int row = first_row + tile * kTileRows + corner / 2 * 8;
        if (linear.bias && row < num_features) values[tile] += __ldg(linear.bias + row);
      }
      const int row = first_row + corner / 2 * 8;
      if (gated) {
        const int column = row_piece * kTileRows + lane / 4 + corner / 2 * 8;
        if (column < num_features / 2) write_output(linear, token, column, num_features / 2, swiglu(values[0], values[1]));
      } else {
        if (row < num_features) write_output(linear, token, row, num_features, values[0]);
        if (row + kTileRows < num_features) write_output(linear, token, row + kTileRows, num_features, values[1]);
      }
    }
  }
}

template <class Format, int kTokenTiles>
__device__ void multiply(const Params& params, const uint8_t* ring, uint32_t filled, uint32_t emptied, int warp) {
  const WarpShare share = share_of_warp(params, warp);
  const int warp_slices = params.linear.plan.warp_slices;
  const int stage_bytes = Stage<Format>::bytes(kTokenTiles, warp_slices);
  const uint8_t* piece = ring + warp * Format::kPieceBytes;
  const uint32_t activations = shared_address(ring) + Stage<Format>::kWeightBytes +
                               share.slice_in_block * Stage<Format>::slice_bytes(kTokenTiles);
  Sums<kTokenTiles> sums = {};
  int stage = 0;
  uint32_t parity = 0;
  const int rounds = rounds_of_block(params);
  for (int round = 0; round < rounds; ++round) {
    barrier_wait(filled + stage * 8, parity);
    if (round < share.num_chunks) {
      multiply_chunk<Format, kTokenTiles>(piece + stage * stage_bytes, activations + stage * stage_bytes, sums);
    }
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) barrier_arrive(emptied + stage * 8);
    if (++stage == params.num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  wait_for_predecessors();  // over long ago; makes this warp's own reads and writes follow it
  if (warp_slices > 1) {
    add_slices<kTokenTiles>(warp_slices, warp, reinterpret_cast<float4*>(const_cast<uint8_t*>(ring)), sums);
    if (share.slice_in_block > 0) return;
  }
  if (share.row_piece >= params.row_pieces) return;
  if (params.linear.plan.splits > 1 && !add_splits<kTokenTiles>(params.linear, share.row_piece, sums)) return;
  finish<kTokenTiles>(params.linear, share.row_piece, sums);
}

#ifndef WIDE_BLOCKS
#define WIDE_BLOCKS 1
#endif
/// Two blocks on a multiprocessor let the next linear's read ahead while this one's finish.
__host__ __device__ constexpr int blocks_per_sm(int token_tiles) { return token_tiles <= 4 ? 2 : WIDE_BLOCKS; }

template <class Format, int kTokenTiles>
__global__ void __launch_bounds__(kThreads, blocks_per_sm(kTokenTiles)) lowbit_linear_kernel(const __grid_constant__ Params params) {
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t filled = shared_address(shared);
  const uint32_t emptied = filled + kMaxStages * 8;
  uint8_t* ring = shared + kBarrierBytes;
#ifndef LATE_TRIGGER
  let_dependents_start();
#endif
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < params.num_stages; ++stage) {
      barrier_init(filled + stage * 8, kWarpSize);
      barrier_init(emptied + stage * 8, kConsumerWarps);
    }
    barrier_init_fence();
  }
  __syncthreads();
  const int warp = threadIdx.x / kWarpSize;
  if (warp == kConsumerWarps) {
    load<Format, kTokenTiles>(params, shared_address(ring), filled, emptied);
  } else {
    multiply<Format, kTokenTiles>(params, ring, filled, emptied, warp);
  }
}

// ---- the launcher ----

template <class Format, int kTokenTiles>
int stages_that_fit(const LowbitPlan& plan, const DeviceLimits& limits) {
  constexpr size_t kReservedBytes = 1024;  // by the driver, a block
  const size_t budget = min(limits.shared_bytes_per_block, limits.shared_bytes_per_sm / blocks_per_sm(kTokenTiles) - kReservedBytes);
  const size_t stage_bytes = Stage<Format>::bytes(kTokenTiles, plan.warp_slices);
  return static_cast<int>(min((budget - kBarrierBytes) / stage_bytes, static_cast<size_t>(kMaxStages)));
}

/// Code built for 9.0 and later waits for its predecessors itself; older code must not be started early.
template <class Kernel>
cudaError_t starts_early(Kernel kernel, bool* early_out) {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  *early_out = status == cudaSuccess && attributes.ptxVersion >= 90;
  return status;
}

template <class Format, int kTokenTiles>
cudaError_t launch(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  const auto kernel = lowbit_linear_kernel<Format, kTokenTiles>;
  Params params;
  params.linear = linear;
  params.row_pieces = (linear.shape.out_features + kPieceRows - 1) / kPieceRows;
  params.num_chunks = (linear.shape.in_features + Format::kChunkColumns - 1) / Format::kChunkColumns;
  params.num_stages = stages_that_fit<Format, kTokenTiles>(linear.plan, limits);
  if (params.num_stages < 1) return cudaErrorInvalidConfiguration;
  const int pieces_per_block = kConsumerWarps / linear.plan.warp_slices;
  const int row_blocks = (params.row_pieces + pieces_per_block - 1) / pieces_per_block;

  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(row_blocks * linear.plan.splits);
  config.blockDim = dim3(kThreads);
  const size_t exchange_bytes = static_cast<size_t>(kConsumerWarps) * kTilesPerPiece * kTokenTiles * kWarpSize * 16;
  const size_t ring_bytes =
      static_cast<size_t>(params.num_stages) * Stage<Format>::bytes(kTokenTiles, linear.plan.warp_slices);
  config.dynamicSmemBytes = kBarrierBytes + (linear.plan.warp_slices > 1 ? max(ring_bytes, exchange_bytes) : ring_bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;

  bool early = false;
  if (const cudaError_t status = starts_early(kernel, &early); status != cudaSuccess) return status;
  config.numAttrs = early ? 1 : 0;
  const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(config.dynamicSmemBytes));
  if (status != cudaSuccess) return status;
  return cudaLaunchKernelEx(&config, kernel, params);
}

template <class Format>
cudaError_t launch_for_rows(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  if (linear.num_rows <= 8) return launch<Format, 1>(linear, limits, stream);
  if (linear.num_rows <= 16) return launch<Format, 2>(linear, limits, stream);
  if (linear.num_rows <= 32) return launch<Format, 4>(linear, limits, stream);
  return launch<Format, 8>(linear, limits, stream);
}

bool is_valid(const LowbitLinear& linear) {
  const LowbitPlan plan = linear.plan;
  const bool plan_fits = (plan.warp_slices == 1 || plan.warp_slices == 2 || plan.warp_slices == 4 || plan.warp_slices == 8) &&
                         plan.splits >= 1;
  const bool shape_fits = linear.shape.in_features > 0 && linear.shape.in_features % 8 == 0 && linear.shape.out_features > 0;
  const bool gate_fits = linear.activation == Activation::kNone || linear.shape.out_features % kPieceRows == 0;
  return plan_fits && shape_fits && gate_fits && linear.num_rows >= 1 && linear.num_rows <= kMaxLinearRows;
}

}  // namespace

cudaError_t launch_lowbit_linear(const LowbitLinear& linear, const DeviceLimits& limits, cudaStream_t stream) {
  if (!is_valid(linear)) return cudaErrorInvalidValue;
  return linear.shape.format == WeightFormat::kInt4 ? launch_for_rows<Int4>(linear, limits, stream)
                                                    : launch_for_rows<Int8>(linear, limits, stream);
}

}  // namespace pilotfish::cuda
