// Low-bit linear of many rows: a thread block has up to 128 weight rows and 64 tokens, and walks K with a ring of
// stages. It cuts K where the kernels for few rows cut it and adds the parts in their order: a row has the same bits in
// a prompt and in a pass of its own.
#include <algorithm>

#include "common.cuh"
#include "kernels.h"
#include "lowbit_combine.cuh"
#include "prefill_finish.cuh"
#include "prefill_multiply.cuh"
#include "prefill_operands.cuh"
#include "prefill_ring.cuh"

namespace pilotfish::cuda {
namespace {

/// Adds a part's sums to those of the parts before it and starts the next.
__device__ __forceinline__ void end_part(PrefillSums& totals, PrefillSums& sums) {
#pragma unroll
  for (int i = 0; i < kWarpRowTiles * kWarpTokenTiles; ++i) {
    float4& sum = sums[i / kWarpTokenTiles][i % kWarpTokenTiles];
    add(totals[i / kWarpTokenTiles][i % kWarpTokenTiles], sum);
    sum = {};
  }
}

/// Bytes of shared memory for the results of a piece.
constexpr int kResultBytes = kGroupTokens * kTokenFloats * sizeof(float);

/// A warp's part of a tile.
struct WarpPart {
  int piece;
  int share;

  __device__ static WarpPart of_warp() {
    const int warp = threadIdx.x / kWarpSize;
    return {warp % kTilePieces, warp / kTilePieces};
  }
  __device__ int first_row_tile() const { return kHasWgmma ? share * kWarpRowTiles : 0; }
  __device__ int first_token_tile() const { return kHasWgmma ? 0 : share * kWarpTokenTiles; }
};

/// Writes the results of a tile, by all its warps: half of a piece's tokens each. `results`: [pieces] of kResultBytes.
__device__ __forceinline__ void write_results(const PrefillParams& params, const PrefillTile& tile,
                                              const WarpPart& part, const PrefillSums& totals, uint8_t* results) {
  constexpr int kShareTokens = kGroupTokens / kPieceShares;
  auto* const place = reinterpret_cast<float*>(results + part.piece * kResultBytes);
#pragma unroll
  for (int i = 0; i < kWarpRowTiles; ++i) {
    leave_tile(place + part.first_token_tile() * kTokenTile * kTokenFloats, part.first_row_tile() + i, totals[i]);
  }
  __syncthreads();
  if (part.piece >= tile.num_pieces) return;
  const int first = part.share * kShareTokens, first_token = blockIdx.x * kGroupTokens + first;
  const int num_tokens = min(params.linear.num_rows - first_token, kShareTokens);
  const float* const scales = params.linear.input_norm.squares ? params.operands.scales + first_token : nullptr;
  const PieceColumn column(params.linear, tile.group * params.grid.pieces_per_group + tile.first_piece + part.piece);
  column.write(place + first * kTokenFloats, first_token, num_tokens, scales);
}

template <class Format>
__global__ void __launch_bounds__(kPrefillThreads, kTilesPerGroup)
    prefill_linear_kernel(const __grid_constant__ PrefillParams params) {
  extern __shared__ __align__(1024) uint8_t shared[];
  let_dependents_start();
  const PrefillTile tile = PrefillTile::of(params.grid);
  if (tile.num_pieces <= 0) return;
  const PrefillRing<Format> ring(params, tile, shared);
  ring.start();
  const WarpPart part = WarpPart::of_warp();
  PrefillSums totals = {}, sums = {};
  int part_end = params.cuts.last_chunk_of_part(tile.group, 0);
#pragma unroll 1
  for (int chunk = 0; chunk < params.grid.num_chunks; ++chunk) {
    ring.refill(chunk);
    const uint8_t* stage = ring.wait(chunk);
    const uint8_t* const piece = stage + PrefillStage<Format>::kWeights + part.piece * Format::kPieceBytes;
    if constexpr (kHasWgmma) {
      const auto* column_sums = reinterpret_cast<const float4*>(stage + ChunkOperands<Format>::kSums);
      multiply_wide_chunk<Format, kWarpRowTiles, kGroupTokenTiles>(piece, part.first_row_tile(), shared_address(stage),
                                                                   column_sums + threadIdx.x % 4, sums);
    } else {
      multiply_prefill_chunk<Format>(piece, stage, part.first_token_tile(), sums);
    }
    ring.leave(chunk);
    if (chunk != part_end && chunk != params.grid.num_chunks - 1) continue;
    end_part(totals, sums);
    part_end = params.cuts.last_chunk_of_part(tile.group, chunk + 1);
  }
  __syncthreads();  // all stages have been read
  write_results(params, tile, part, totals, shared + kPrefillBarrierBytes);
}

/// Stages of the ring where so many blocks share a multiprocessor.
template <class Format>
int num_stages(const DeviceLimits& limits, int blocks_per_sm) {
  constexpr size_t kReservedBytes = 1024;  // by the driver, a block
  const size_t most =
      std::min(limits.shared_bytes_per_block, limits.shared_bytes_per_sm / blocks_per_sm - kReservedBytes);
  return std::min(static_cast<int>((most - kPrefillBarrierBytes) / PrefillStage<Format>::kBytes), kMostPrefillStages);
}

template <class Format>
cudaError_t launch(const LowbitLinear& linear, void* scratch, const DeviceLimits& limits, cudaStream_t stream) {
  PrefillParams params;
  params.linear = linear;
  params.grid = unit_grid<Format>(linear.shape);
  params.cuts = PrefillCuts::of<Format>(linear.plan, params.grid);
  params.operands = PrefillOperands::in<Format>(scratch, linear.num_rows, params.grid.num_chunks);
  params.num_stages = num_stages<Format>(limits, 2);
  if (params.num_stages < 2) params.num_stages = num_stages<Format>(limits, 1);
  if (params.num_stages < 2) return cudaErrorInvalidConfiguration;
  const size_t bytes =
      kPrefillBarrierBytes + std::max(params.num_stages * PrefillStage<Format>::kBytes, kTilePieces * kResultBytes);
  const cudaError_t status = launch_prefill_operands<Format>(linear, params.operands, stream);
  if (status != cudaSuccess) return status;
  const dim3 grid((linear.num_rows + kGroupTokens - 1) / kGroupTokens, params.grid.num_groups * kTilesPerGroup);
  return launch_early(prefill_linear_kernel<Format>, grid, kPrefillThreads, bytes, stream, params);
}

/// How much slower than int4 a format is on an H200 (NOTES.md).
struct Slowness {
  double prefill;  // a layer of 512 rows at once
  double pass;     // 64 rows of the chain in a pass; f16 has times of its own
};

Slowness slowness_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt4:
      return {1, 1};
    case WeightFormat::kInt4Asym:
      return {1189.0 / 848, 0.989 / 0.545};
    case WeightFormat::kInt8:
      return {1045.0 / 848, 0.587 / 0.545};
    case WeightFormat::kF16:
      break;
  }
  return {733.0 / 642, 1};  // of int4's last version: unpacking, which is what that made faster, f16 has none of
}

/// Microseconds on an H200, of which only the ratio matters: one linear at once, and 64 rows of it in a pass.
double prefill_microseconds(const LowbitShape& shape, int token_groups, const DeviceLimits& limits) {
  const int tiles = token_groups * ((unit_grid(shape).num_pieces + kTilePieces - 1) / kTilePieces);
  const int rounds = tiles / (kTilesPerGroup * limits.num_sms), left = tiles % (kTilesPerGroup * limits.num_sms);
  const double k = shape.in_features, round = 9 + 0.01 * k, alone = 12 + 0.0078 * k, shared = 10 + 0.0115 * k;
  const double rest = left == 0 ? 0 : left <= limits.num_sms ? alone : shared;
  return slowness_of(shape.format).prefill * (rounds * round + rest);
}

double pass_microseconds(const LowbitShape& shape, const DeviceLimits& limits) {
  const double weights = static_cast<double>(shape.in_features) * shape.out_features;
  if (shape.format == WeightFormat::kF16) return 2 + 1.15e-6 * weights;
  const bool is_resident = plan_lowbit_linear(shape, limits).is_resident;
  return slowness_of(shape.format).pass * (is_resident ? 3 + 0.86e-6 * weights : 6 + 0.37e-6 * weights);
}

}  // namespace

bool prefers_prefill(const LowbitShape& shape, int num_rows, const DeviceLimits& limits) {
  const int token_groups = (num_rows + kGroupTokens - 1) / kGroupTokens;
  return num_rows > kMaxLinearRows &&
         prefill_microseconds(shape, token_groups, limits) < token_groups * pass_microseconds(shape, limits);
}

size_t prefill_scratch_bytes(const LowbitShape& shape, int num_rows) {
  const size_t groups = (num_rows + kGroupTokens - 1) / kGroupTokens;
  const size_t chunk_bytes = shape.format == WeightFormat::kF16        ? ChunkOperands<Half>::kBytes
                             : shape.format == WeightFormat::kInt8     ? ChunkOperands<Int8>::kBytes
                             : shape.format == WeightFormat::kInt4Asym ? ChunkOperands<Int4Asym>::kBytes
                                                                       : ChunkOperands<Int4>::kBytes;
  return groups * (unit_grid(shape).num_chunks * chunk_bytes + kGroupTokens * sizeof(float));
}

cudaError_t launch_prefill_linear(const LowbitLinear& linear, void* scratch, const DeviceLimits& limits,
                                  cudaStream_t stream) {
  const LowbitShape& shape = linear.shape;
  const bool gate_fits = linear.activation == Activation::kNone || shape.out_features % kPieceRows == 0;
  const bool next_fits = !linear.next.halves || linear.output_type == OutputType::kF32;
  if (shape.in_features <= 0 || shape.in_features % 8 != 0 || shape.out_features <= 0 || linear.num_rows < 1 ||
      linear.num_rows > kMaxPrefillRows || !gate_fits || !next_fits || !scratch) {
    return cudaErrorInvalidValue;
  }
  switch (shape.format) {
    case WeightFormat::kInt4:
      return launch<Int4>(linear, scratch, limits, stream);
    case WeightFormat::kInt4Asym:
      return launch<Int4Asym>(linear, scratch, limits, stream);
    case WeightFormat::kF16:
      return launch<Half>(linear, scratch, limits, stream);
    case WeightFormat::kInt8:
      break;
  }
  return launch<Int8>(linear, scratch, limits, stream);
}

}  // namespace pilotfish::cuda
