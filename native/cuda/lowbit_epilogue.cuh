// The end of a resident linear: the sums of its slices of K are added in order, then bias, SwiGLU and residual are
// applied and the result is written. All warps share it, a token a warp and a column a lane: few instructions in a row,
// which is what the time between two small linears is made of.
#pragma once

#include "common.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"
#include "lowbit_result.cuh"
#include "lowbit_slice.cuh"

namespace pilotfish::cuda {

__device__ __forceinline__ void store_shared(uint32_t target, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(target), "f"(value) : "memory");
}

/// Sums of the slices in shared memory: [token][slice][32 columns] f32.
struct SliceSums {
  static constexpr int kSliceFloats = kPieceRows + 4;  // padded, as tokens are: a warp that leaves its sums
  static constexpr int kTokenFloats = kMaxSlices * kSliceFloats + 4;  // meets no bank twice
  static constexpr int kTokenBytes = kTokenFloats * 4;

  float* sums;

  /// Zeros for slices that there are not, by one warp.
  __device__ __forceinline__ void clear_absent(int num_slices, int num_tokens) const {
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll 1
    for (int i = num_slices; i < kMaxSlices; ++i) {
#pragma unroll 1
      for (int token = 0; token < num_tokens; ++token) sums[token * kTokenFloats + i * kSliceFloats + lane] = 0;
    }
  }

  /// Shared-memory address where this lane's first mma result of a slice goes.
  __device__ uint32_t lane_place(int slice) const {
    const int lane = threadIdx.x % kWarpSize;
    return shared_address(sums + lane % 4 * 2 * kTokenFloats + slice * kSliceFloats + lane / 4);
  }

  /// Memory::store(address, value) knows whose memory `place` is.
  template <class Memory>
  __device__ __forceinline__ static void leave(uint32_t place, int num_rows, const float4 (&slice)[kTilesPerPiece]) {
    const int token = threadIdx.x % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < kTilesPerPiece; ++tile) {
      const float4& v = slice[tile];
      const uint32_t at = place + tile * kTileRows * 4;
      if (token < num_rows) Memory::store(at, v.x), Memory::store(at + 32, v.z);
      if (token + 1 < num_rows) Memory::store(at + kTokenBytes, v.y), Memory::store(at + kTokenBytes + 32, v.w);
    }
  }

  /// This lane's column of a token, slices in order. All are on their way before the first is added.
  __device__ __forceinline__ float total(int token) const {
    const float* const at = sums + token * kTokenFloats + threadIdx.x % kWarpSize;
    float parts[kMaxSlices];
#pragma unroll
    for (int slice = 0; slice < kMaxSlices; ++slice) parts[slice] = at[slice * kSliceFloats];
    float sum = parts[0];
#pragma unroll
    for (int slice = 1; slice < kMaxSlices; ++slice) sum = __fadd_rn(sum, parts[slice]);
    return sum;
  }
};

/// In its place: the intrinsic for halves may be read early, whatever it depends on.
__device__ __forceinline__ float load_half(const __half* source) {
  uint16_t bits;
  asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(bits) : "l"(source) : "memory");
  return __half2float(__ushort_as_half(bits));
}

/// What the end of a linear reads beside the sums: this lane's column of a token.
struct OutputInputs {
  float bias = 0;
  float next_weight = 1;
  float residual = 0;
};

/// The same for the tokens behind the first, in shared memory: left there while the slices are multiplied, so that no
/// end waits for memory after the sums.
struct OtherInputs {
  float bias[kWarpSize], next_weight[kWarpSize];  // of a lane's column
  float residual[kTokenTile][kWarpSize];          // [token]

  __device__ __forceinline__ OutputInputs of_token(int token) const {
    const int lane = threadIdx.x % kWarpSize;
    return {bias[lane], next_weight[lane], residual[token][lane]};
  }
};

/// This lane's column of a piece of the result.
class OutputColumn {
 public:
  __device__ __forceinline__ OutputColumn(const LowbitLinear& linear, int piece)
      : linear_(linear),
        piece_(piece),
        lane_(threadIdx.x % kWarpSize),
        is_gated_(linear.activation == Activation::kSwiGlu),
        num_columns_(linear.shape.out_features >> is_gated_),
        column_(piece * (is_gated_ ? kTileRows : kPieceRows) + lane_),
        exists_(column_ < num_columns_ && (!is_gated_ || lane_ < kTileRows)) {}

  /// Constants, which need not wait for an earlier kernel.
  __device__ __forceinline__ void read_constants(OutputInputs& inputs) const {
    const int row = piece_ * kPieceRows + lane_;
    if (linear_.bias && row < linear_.shape.out_features) inputs.bias = __ldg(linear_.bias + row);
    if (linear_.next.weight && exists_) inputs.next_weight = __ldg(linear_.next.weight + column_);
  }
  __device__ __forceinline__ void read_residual(int token, OutputInputs& inputs) const {
    if (!linear_.residual || !exists_) return;
    inputs.residual = linear_.output_type == OutputType::kF32
                          ? __ldcg(static_cast<const float*>(linear_.residual) + index(token))
                          : load_half(static_cast<const __half*>(linear_.residual) + index(token));
  }

  /// By one warp, which has read the first token's. All residuals are on their way before the first is stored.
  __device__ __forceinline__ void leave_others(const OutputInputs& first, OtherInputs& others) const {
    others.bias[lane_] = first.bias;
    others.next_weight[lane_] = first.next_weight;
    OutputInputs inputs[kTokenTile];
#pragma unroll
    for (int token = 1; token < kTokenTile; ++token) {
      if (token < linear_.num_rows) read_residual(token, inputs[token]);
    }
#pragma unroll
    for (int token = 1; token < kTokenTile; ++token) others.residual[token][lane_] = inputs[token].residual;
  }

  /// Where a token's result goes.
  struct Places {
    void* out;
    __half* halves;  // null: none
    float* squares;  // null: none, or not this lane's
  };
  __device__ __forceinline__ Places places(int token) const {
    Places places = {};
    const int at = index(token);
    places.out = linear_.output_type == OutputType::kF32 ? static_cast<void*>(static_cast<float*>(linear_.out) + at)
                                                         : static_cast<__half*>(linear_.out) + at;
    if (linear_.next.halves) places.halves = static_cast<__half*>(linear_.next.halves) + at;
    if (linear_.next.weight) places.squares = linear_.next.squares + token * num_square_parts(num_columns_) + piece_;
    return places;
  }

  /// By all lanes of the warp. `scale`: of the token's input.
  __device__ __forceinline__ void write(const Places& places, float sum, float scale,
                                        const OutputInputs& inputs) const {
    float value = scaled(sum, scale, inputs.bias);
    if (is_gated_) value = swiglu(value, __shfl_down_sync(~0u, value, kTileRows));
    value = __fadd_rn(value, inputs.residual);
    if (exists_) {
      if (places.halves) write_halves(places.halves, half_for_next(value, inputs.next_weight));
      if (linear_.output_type == OutputType::kF32) {
        __stcg(static_cast<float*>(places.out), value);
      } else {
        __stcg(static_cast<__half*>(places.out), __float2half_rn(value));
      }
    }
    if (!places.squares) return;
    const float squares = sum_squares(exists_ ? value : 0.0f);
    if (lane_ == 0) __stcg(places.squares, squares);
  }

 private:
  __device__ __forceinline__ void write_halves(__half* place, __half value) const {
    __stcg(place, value);
    if (linear_.next.copy_stride == 0) return;
#pragma unroll
    for (int i = 1; i < kInputCopies; ++i) __stcg(place + i * linear_.next.copy_stride, value);
  }
  // A pass of 64 rows by 2^24 columns has 2^30 results.
  __device__ int index(int token) const { return token * num_columns_ + column_; }

  const LowbitLinear& linear_;
  const int piece_, lane_;
  const bool is_gated_;
  const int num_columns_, column_;
  const bool exists_;
};

}  // namespace pilotfish::cuda
