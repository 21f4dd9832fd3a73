// The end of a low-bit linear: sums that several thread blocks share are added in the order of K, then bias, SwiGLU and
// residual are applied and the result is written.
#pragma once

#include "common.cuh"
#include "kernels.h"
#include "lowbit_result.cuh"
#include "lowbit_stage.cuh"

namespace pilotfish::cuda {

__device__ __forceinline__ void add(float4& sum, const float4& other) {
  sum.x += other.x;
  sum.y += other.y;
  sum.z += other.z;
  sum.w += other.w;
}

/// Where a block leaves the sums of a row group, apart for the group it enters in the middle, the one it begins and
/// leaves to others, and those it sees whole: another block may already wait for the second while the third is in use.
enum Place { kEntered, kBegun, kWhole };

/// The place of one warp of a block: [row tiles][token tiles][lanes] float4.
template <class Shape>
__device__ float4* partial_sums(const LowbitLinear& linear, int block, Place place, int warp) {
  const size_t index = (static_cast<size_t>(block) * kPartialsPerBlock + place) * kPieceWarps + warp;
  return reinterpret_cast<float4*>(linear.partials) + index * kTilesPerPiece * Shape::kTokenTiles * kWarpSize +
         threadIdx.x % kWarpSize;
}

/// True where this lane's sums of a token tile belong to tokens of the pass.
__device__ __forceinline__ bool is_used(const LowbitLinear& linear, int token_tile) {
  return token_tile * kTokenTile + static_cast<int>(threadIdx.x % 4) * 2 < linear.num_rows;
}

/// Leaves the sums of the row tiles from `first_tile` on.
template <class Shape>
__device__ void leave_partial(const LowbitLinear& linear, Place place, int piece, int first_tile,
                              const Sums<Shape>& sums) {
  float4* partial = partial_sums<Shape>(linear, blockIdx.x, place, piece) + first_tile * Shape::kTokenTiles * kWarpSize;
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles * Shape::kTokenTiles; ++i) {
    const int tokens = i % Shape::kTokenTiles;
    if (is_used(linear, tokens)) store_relaxed(partial + i * kWarpSize, sums[i / Shape::kTokenTiles][tokens]);
  }
}

/// Reads up to kParts places of sums, again and again until other blocks have written all. The first is at `head`, the
/// others kStride apart from `place` on. Parts past `num_parts` are zero, and all where this
/// lane has no tokens.
template <int kParts, size_t kStride, int kTileStride>
__device__ __forceinline__ void read_parts(const float4* head, const float4* place, int num_parts, bool has_tokens,
                                           float4 (&parts)[kParts][kTilesPerPiece]) {
  bool complete;
  do {
    complete = true;
#pragma unroll
    for (int i = 0; i < kParts * kTilesPerPiece; ++i) {
      const int part = i / kTilesPerPiece, tile = i % kTilesPerPiece;
      parts[part][tile] = {};
      if (part >= num_parts || !has_tokens) continue;
      parts[part][tile] = load_relaxed((part ? place + part * kStride : head) + tile * kTileStride);
    }
#pragma unroll
    for (int i = 0; i < kParts * kTilesPerPiece; ++i) {
      complete = complete && is_written(parts[i / kTilesPerPiece][i % kTilesPerPiece]);
    }
  } while (!complete);
}

/// Adds the sums of one token tile that blocks first..last left, in this order, waiting for each, and clears their
/// places.
template <class Shape>
__device__ void add_partials(const LowbitLinear& linear, int first, int last, int warp, int token_tile,
                             float4 (&totals)[kTilesPerPiece]) {
  constexpr int kParts =
      Shape::kTokenTiles == 1 ? 5 : 4;  // at a time: a spilled register costs more than another round
  constexpr int kTileStride = Shape::kTokenTiles * kWarpSize;
  constexpr size_t kStride = static_cast<size_t>(kPartialsPerBlock) * kPieceWarps * kTilesPerPiece * kTileStride;
  const float nan = __uint_as_float(kNotWritten);
  float4* head = partial_sums<Shape>(linear, first, first == last ? kWhole : kBegun, warp) + token_tile * kWarpSize;
  float4* place = partial_sums<Shape>(linear, first, kEntered, warp) + token_tile * kWarpSize;
  const bool has_tokens = is_used(linear, token_tile);
#pragma unroll 1
  for (int left = last - first + 1; left > 0; left -= kParts) {
    float4 parts[kParts][kTilesPerPiece];
    read_parts<kParts, kStride, kTileStride>(head, place, left, has_tokens, parts);
#pragma unroll
    for (int i = 0; i < kParts * kTilesPerPiece; ++i) {
      const int part = i / kTilesPerPiece, tile = i % kTilesPerPiece;
      if (part >= left || !has_tokens) continue;
      store_relaxed((part ? place + part * kStride : head) + tile * kTileStride, make_float4(nan, nan, nan, nan));
      add(totals[tile], parts[part][tile]);
    }
    place += kParts * kStride;
    head = place;
  }
}

// ---- the epilogue ----

__device__ __forceinline__ float scaled_row(const LowbitLinear& linear, int row, float sum, float scale) {
  return linear.bias && row < linear.shape.out_features ? scaled(sum, scale, __ldg(linear.bias + row))
                                                        : scaled(sum, scale, 0.0f);
}

/// Writes one result, with its copy for the next linear; returns it, or zero where there is no such column.
__device__ inline float write_output(const LowbitLinear& linear, int token, int column, int num_columns, float value) {
  if (column >= num_columns) return 0;
  const size_t index = static_cast<size_t>(token) * num_columns + column;
  if (linear.output_type == OutputType::kF16) {
    if (linear.residual) {
      value = __fadd_rn(value, __half2float(__ldcg(static_cast<const __half*>(linear.residual) + index)));
    }
    static_cast<__half*>(linear.out)[index] = __float2half_rn(value);
    return value;
  }
  if (linear.residual) value = __fadd_rn(value, __ldcg(static_cast<const float*>(linear.residual) + index));
  static_cast<float*>(linear.out)[index] = value;
  if (linear.next.halves) {
    const float weight = linear.next.weight ? __ldg(linear.next.weight + column) : 1.0f;
    static_cast<__half*>(linear.next.halves)[index] = half_for_next(value, weight);
  }
  return value;
}

/// Leaves the squares of a piece's 32 columns: the sums of this lane's two tokens, which all lanes that share them
/// have.
__device__ __forceinline__ void leave_squares(const LowbitLinear& linear, int piece, int token_tile, float even,
                                              float odd) {
  const int lane = threadIdx.x % kWarpSize, token = token_tile * kTokenTile + lane * 2;
  float* const target =
      linear.next.squares + static_cast<size_t>(token) * num_square_parts(linear.shape.out_features) + piece;
  if (lane < 4 && token < linear.num_rows) target[0] = even;
  if (lane < 4 && token + 1 < linear.num_rows) target[num_square_parts(linear.shape.out_features)] = odd;
}

/// 1 / rms of this lane's two tokens of a tile, where the input is a copy for a norm; else 1.
__device__ __forceinline__ float2 input_scales(const LowbitLinear& linear, int token_tile) {
  if (!linear.input_norm.squares) return make_float2(1.0f, 1.0f);
  const int lane = threadIdx.x % kWarpSize, token = token_tile * kTokenTile + lane / 4;
  const float scale = input_scale<8>(linear, min(token, linear.num_rows - 1));
  return make_float2(__shfl_sync(~0u, scale, lane % 4 * 8), __shfl_sync(~0u, scale, lane % 4 * 8 + 4));
}

/// Writes the sums of one piece and one token tile. With SwiGLU a piece is a gate and an up tile.
__device__ __forceinline__ void write_tile(const LowbitLinear& linear, int piece, int token_tile, const float2& scales,
                                           const float4 (&sums)[kTilesPerPiece]) {
  const int lane = threadIdx.x % kWarpSize;
  const int num_features = linear.shape.out_features;
  const float values[kTilesPerPiece][4] = {{sums[0].x, sums[0].y, sums[0].z, sums[0].w},
                                           {sums[1].x, sums[1].y, sums[1].z, sums[1].w}};
  float squares[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = token_tile * kTokenTile + lane % 4 * 2 + i % 2;
    const int row_in_tile = lane / 4 + i / 2 * 8;
    const int row = piece * kPieceRows + row_in_tile;
    if (token >= linear.num_rows) continue;
    const float scale = i % 2 == 0 ? scales.x : scales.y;
    const float first = scaled_row(linear, row, values[0][i], scale);
    const float second = scaled_row(linear, row + kTileRows, values[1][i], scale);
    if (linear.activation == Activation::kSwiGlu) {
      write_output(linear, token, piece * kTileRows + row_in_tile, num_features / 2, swiglu(first, second));
    } else {
      const float a = write_output(linear, token, row, num_features, first);
      const float b = write_output(linear, token, row + kTileRows, num_features, second);
      squares[i % 2] = __fadd_rn(squares[i % 2], pair_of_squares(a, b));
    }
  }
  if (!linear.next.weight) return;
  leave_squares(linear, piece, token_tile, sum_lane_squares(squares[0]), sum_lane_squares(squares[1]));
}

/// Adds what blocks first..last left of a piece and writes it. The blocks, and a block's warps of one piece, share the
/// token tiles, the last block takes the first. They wait for each other, which is safe because a launch has at most
/// one block a multiprocessor. A loop, not straight code: instructions that run once a launch cost more to fetch than
/// to execute. `scales`: shared memory of the warp, for 1 / rms of its tokens: in registers they would be spilled,
/// which costs a microsecond.
template <class Shape>
__device__ void combine(const LowbitLinear& linear, int first, int last, int piece, int in_group, int share,
                        float2 (&scales)[4]) {
  const int num_blocks = last - first + 1, lane = threadIdx.x % kWarpSize;
#pragma unroll 1
  for (int token_tile = (last - static_cast<int>(blockIdx.x)) * Shape::kPieceShares + share;
       token_tile * kTokenTile < linear.num_rows; token_tile += num_blocks * Shape::kPieceShares) {
    const float2 mine = input_scales(linear, token_tile);  // while other blocks are still at it
    if (lane < 4) scales[lane] = mine;
    float4 totals[kTilesPerPiece] = {};
    add_partials<Shape>(linear, first, last, in_group, token_tile, totals);
    __syncwarp();
    write_tile(linear, piece, token_tile, scales[lane % 4], totals);
    __syncwarp();
  }
}

}  // namespace pilotfish::cuda
