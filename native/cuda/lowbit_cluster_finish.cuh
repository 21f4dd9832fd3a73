// The end of a clustered low-bit linear: a warp takes a token and the 32 rows of a piece, a lane a row.
#pragma once

#include "lowbit_cluster_exchange.cuh"
#include "lowbit_combine.cuh"

namespace pilotfish::cuda {

/// 1 / rms of the tokens that a warp finishes, where the input is a copy for a norm: token warp, warp + num_warps, ...
__device__ inline void leave_token_scales(const LowbitLinear& linear, int warp, int num_warps, float* scales) {
  if (!linear.input_norm.squares) return;
  const int lane = threadIdx.x % kWarpSize;
#pragma unroll 1
  for (int first = warp; first < linear.num_rows; first += num_warps * (kWarpSize / 4)) {  // four lanes a token
    const int token = first + lane / 4 * num_warps;
    const float scale = input_scale<4>(linear, min(token, linear.num_rows - 1));
    if (lane % 4 == 0 && token < linear.num_rows) scales[token] = scale;
  }
  __syncwarp();
}

/// What a result is combined with; read before the sums have come.
struct FinishInputs {
  float bias = 0;
  float residual = 0;
  float next_weight = 1;

  __device__ void load(const LowbitLinear& linear, int row, int token, int column, int num_columns) {
    if (linear.bias && row < linear.shape.out_features) bias = __ldg(linear.bias + row);
    if (column >= num_columns) return;
    if (linear.residual) {
      const size_t index = static_cast<size_t>(token) * num_columns + column;
      residual = linear.output_type == OutputType::kF16
                     ? __half2float(__ldcg(static_cast<const __half*>(linear.residual) + index))
                     : __ldcg(static_cast<const float*>(linear.residual) + index);
    }
    if (linear.next.weight) next_weight = __ldg(linear.next.weight + column);
  }
};

/// Writes one result with its copy for the next linear.
__device__ inline void write_result(const LowbitLinear& linear, size_t index, float value, float next_weight) {
  if (linear.output_type == OutputType::kF16) {
    static_cast<__half*>(linear.out)[index] = __float2half_rn(value);
    return;
  }
  static_cast<float*>(linear.out)[index] = value;
  if (linear.next.halves) static_cast<__half*>(linear.next.halves)[index] = half_for_next(value, next_weight);
}

/// Adds what has been received of one piece and token, and writes it.
__device__ inline void finish_token(const LowbitLinear& linear, const Exchange& exchange, int batch, int owned,
                                    int piece, int token, const float* scales) {
  const int lane = threadIdx.x % kWarpSize, row = piece * kPieceRows + lane;
  const bool is_gated = linear.activation == Activation::kSwiGlu;
  const int num_columns = is_gated ? linear.shape.out_features / 2 : linear.shape.out_features;
  const int column = is_gated ? (lane < kTileRows ? piece * kTileRows + lane : num_columns) : row;
  FinishInputs inputs;
  inputs.load(linear, row, token, column, num_columns);
  exchange.wait(batch);
  float value = exchange.total(batch, owned, token);
  value = scaled(value, linear.input_norm.squares ? scales[token] : 1.0f, inputs.bias);
  if (is_gated) value = swiglu(value, __shfl_down_sync(~0u, value, kTileRows));
  value = __fadd_rn(value, inputs.residual);
  if (column < num_columns) {
    write_result(linear, static_cast<size_t>(token) * num_columns + column, value, inputs.next_weight);
  } else {
    value = 0;
  }
  if (!linear.next.weight) return;
  const float square = sum_squares(value);
  if (lane == 0) linear.next.squares[static_cast<size_t>(token) * num_square_parts(num_columns) + piece] = square;
}

}  // namespace pilotfish::cuda
