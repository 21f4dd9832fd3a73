// The end of a prompt's linear: warps leave their sums in shared memory, then each has a column a lane and goes from
// token to token. A short loop: instructions that run once a block cost more to fetch than to execute.
#pragma once

#include "common.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "lowbit_result.cuh"

namespace pilotfish::cuda {

/// [tokens][32 columns of a piece], tokens padded: a warp that leaves mma results meets no bank twice.
inline constexpr int kTokenFloats = kPieceRows + 4;

/// Leaves the sums of one row tile.
template <int kTokenTiles>
__device__ __forceinline__ void leave_tile(float* sums, int row_tile, const float4 (&tile)[kTokenTiles]) {
  const int lane = threadIdx.x % kWarpSize;
  float* const place = sums + lane % 4 * 2 * kTokenFloats + row_tile * kTileRows + lane / 4;
#pragma unroll
  for (int i = 0; i < kTokenTiles; ++i) {
    float* const even = place + i * kTokenTile * kTokenFloats;
    float* const odd = even + kTokenFloats;
    even[0] = tile[i].x, odd[0] = tile[i].y, even[8] = tile[i].z, odd[8] = tile[i].w;
  }
}

/// This lane's column of a piece of the result.
class PieceColumn {
 public:
  __device__ PieceColumn(const LowbitLinear& linear, int piece)
      : linear_(linear),
        lane_(threadIdx.x % kWarpSize),
        piece_(piece),
        is_gated_(linear.activation == Activation::kSwiGlu),
        num_columns_(linear.shape.out_features >> is_gated_),
        column_(piece * (is_gated_ ? kTileRows : kPieceRows) + lane_),
        exists_(column_ < num_columns_ && (!is_gated_ || lane_ < kTileRows)) {
    const int row = piece * kPieceRows + lane_;
    if (linear.bias && row < linear.shape.out_features) bias_ = __ldg(linear.bias + row);
    if (linear.next.weight && exists_) next_weight_ = __ldg(linear.next.weight + column_);
  }

  /// Tokens first_token on. `scales` of these tokens, or null.
  __device__ void write(const float* sums, int first_token, int num_tokens, const float* scales) const {
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int first = 0; first < num_tokens; first += kAtOnce) {
      float residual[kAtOnce], scale[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const bool has_token = first + i < num_tokens;
        residual[i] = has_token ? read_residual(first_token + first + i) : 0.0f;
        scale[i] = scales && has_token ? __ldcg(scales + first + i) : 1.0f;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= num_tokens) break;
        float value = scaled(sums[(first + i) * kTokenFloats + lane_], scale[i], bias_);
        if (is_gated_) value = swiglu(value, __shfl_down_sync(~0u, value, kTileRows));
        write_token(first_token + first + i, __fadd_rn(value, residual[i]));
      }
    }
  }

 private:
  __device__ size_t index(int token) const { return static_cast<size_t>(token) * num_columns_ + column_; }

  __device__ float read_residual(int token) const {
    if (!linear_.residual || !exists_) return 0;
    return linear_.output_type == OutputType::kF32
               ? __ldcg(static_cast<const float*>(linear_.residual) + index(token))
               : __half2float(__ldcg(static_cast<const __half*>(linear_.residual) + index(token)));
  }

  __device__ void write_token(int token, float value) const {
    if (exists_ && linear_.output_type == OutputType::kF16) {
      static_cast<__half*>(linear_.out)[index(token)] = __float2half_rn(value);
    } else if (exists_) {
      static_cast<float*>(linear_.out)[index(token)] = value;
      if (linear_.next.halves)
        static_cast<__half*>(linear_.next.halves)[index(token)] = half_for_next(value, next_weight_);
    }
    if (!linear_.next.weight) return;
    const float squares = sum_squares(exists_ ? value : 0.0f);
    if (lane_ == 0)
      linear_.next.squares[static_cast<size_t>(token) * num_square_parts(num_columns_) + piece_] = squares;
  }

  const LowbitLinear& linear_;
  const int lane_, piece_;
  const bool is_gated_;
  const int num_columns_, column_;
  const bool exists_;
  float bias_ = 0, next_weight_ = 1;
};

}  // namespace pilotfish::cuda
