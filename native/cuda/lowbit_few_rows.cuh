// A resident linear of up to eight rows: a slice a warp, and one warp more that ends the first token. Between two
// linears of a draft step there is little else than the instructions of a few warps, so all that need not wait for the
// predecessor comes before it, down to half a chunk of unpacked weights in registers, and little comes after.
#pragma once

#include "lowbit_epilogue.cuh"
#include "lowbit_half_chunk.cuh"
#include "lowbit_slice.cuh"

namespace pilotfish::cuda {

inline constexpr int kFewRows = kTokenTile;

/// With two blocks a piece, a cluster, the second one leaves its sums in the first one's memory.
template <class Format>
ResidentLayout few_rows_layout(const Slices& slices, int num_blocks, int num_rows) {
  const int num_slices = slices.per_block(num_blocks);
  ResidentLayout layout;
  layout.row_bytes = slices.most_chunks() * Format::kChunkColumns * 2 + 16;
  layout.slice_bytes = num_rows * layout.row_bytes;
  layout.activations =
      ResidentLayout::kPieces + std::min(num_slices * slices.most_chunks(), slices.num_chunks) * Format::kPieceBytes;
  layout.sums = layout.activations + num_slices * layout.slice_bytes;
  layout.inputs = layout.sums + num_rows * SliceSums::kTokenBytes;
  layout.bytes = layout.inputs + (num_rows > 1 ? static_cast<int>(sizeof(OtherInputs)) : 0);
  return layout;
}

/// Makes the compiler have a value here, not after the next wait.
template <class T>
__device__ __forceinline__ void keep(T*& pointer) {
  asm volatile("" : "+l"(pointer));
}
__device__ __forceinline__ void keep(uint32_t& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void keep(int& value) { asm volatile("" : "+r"(value)); }

/// One warp's slice.
template <class Format>
class FewRowsSlice {
 public:
  template <int kBlocks>
  __device__ FewRowsSlice(const ResidentParams& params, const BlockPlace<kBlocks>& block, uint8_t* shared, int warp)
      : params_(params),
        pieces_(params, block, shared, block.first_slice + warp),
        activations_(shared_address(shared) + params.layout.activations + warp * params.layout.slice_bytes),
        place_(block.in_group),
        lane_(threadIdx.x % kWarpSize) {}

  __device__ __forceinline__ void load_weights() const { pieces_.load(); }

  /// Waits for the predecessors in the middle.
  __device__ __forceinline__ void multiply(float4 (&sums)[kTilesPerPiece]) const {
    const int num_rows = params_.linear.num_rows, row_bytes = params_.layout.row_bytes;
    const int first_column = pieces_.first() * Format::kChunkColumns, column = lane_ * 8;
    const int num_columns = (pieces_.last() - pieces_.first()) * Format::kChunkColumns;
    const int num_valid = min(num_columns, params_.linear.shape.in_features - first_column);
    clear_columns(num_valid, num_columns);
    const __half* source = static_cast<const __half*>(params_.linear.x) + first_column + column;
    source += place_ % kInputCopies * params_.linear.x_copy_stride;
    uint32_t target = activations_ + lane_ * 16;
    int is_first = column < num_valid, is_more = num_rows > 1 || num_valid > kWarpSize * 8;
    // Rows past the last token repeat it: their sums are nobody's.
    uint32_t lane_row = activations_ + lane_ / 8 * 16 + min(lane_ % 8, num_rows - 1) * row_bytes;
    keep(source), keep(target), keep(is_first), keep(is_more), keep(lane_row);
    pieces_.wait();
    HalfChunk<Format> half;
    half.unpack(pieces_.piece(pieces_.first()), 0);
    half.settle();

    wait_for_predecessors();
    if (is_first) copy_16(target, source, 16);
    if (is_more) copy_more(source, target, column, num_valid);
    commit_copies();
    wait_for_copies<0>();
    __syncwarp();
    const int end = pieces_.last() * 2;
#pragma unroll 1
    for (int i = pieces_.first() * 2; true;) {
      half.multiply(lane_row, sums);
      if (++i == end) break;
      lane_row += HalfChunk<Format>::kColumns * 2;
      half.unpack(pieces_.piece(i / 2), i % 2);
    }
  }

 private:
  /// Zeros in the columns past K.
  __device__ __forceinline__ void clear_columns(int first, int last) const {
#pragma unroll 1
    for (int column = first + lane_ * 8; column < last; column += kWarpSize * 8) {
#pragma unroll 1
      for (int row = 0; row < params_.linear.num_rows; ++row) {
        store_shared(activations_ + row * params_.layout.row_bytes + column * 2, float4{});
      }
    }
  }

  /// What one copy a lane does not cover.
  __device__ __forceinline__ void copy_more(const __half* source, uint32_t target, int column, int num_columns) const {
    if (num_columns <= kWarpSize * 8) return copy_other_rows(source, target, column < num_columns);
#pragma unroll 1
    for (int row = 0; row < params_.linear.num_rows; ++row) {
#pragma unroll 1
      for (int i = row == 0 ? kWarpSize * 8 : 0; column + i < num_columns; i += kWarpSize * 8) {
        copy_16(target + i * 2, source + i, 16);
      }
      source += params_.linear.shape.in_features;
      target += params_.layout.row_bytes;
    }
  }

  /// A vector a lane and row, without a loop: all are on their way at once.
  __device__ __forceinline__ void copy_other_rows(const __half* source, uint32_t target, bool exists) const {
#pragma unroll
    for (int row = 1; row < kFewRows; ++row) {
      source += params_.linear.shape.in_features;
      target += params_.layout.row_bytes;
      if (exists && row < params_.linear.num_rows) copy_16(target, source, 16);
    }
  }

  const ResidentParams& params_;
  const SlicePieces<Format> pieces_;
  const uint32_t activations_;
  const int place_, lane_;
};

/// How the warps of a piece's blocks meet, each from wherever it is.
template <int kBlocks>
struct Meeting;

template <>
struct Meeting<1> {
  __device__ static void begin() {}
  __device__ static void await_others() {}
  __device__ static uint32_t of_first(uint32_t address) { return address; }
  __device__ static void store(uint32_t address, float value) { store_shared(address, value); }
  __device__ static void sync() { asm volatile("barrier.sync 1;" ::: "memory"); }
};

/// Two blocks of a cluster.
template <>
struct Meeting<2> {
#if __CUDA_ARCH__ >= 900
  __device__ static void begin() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
  /// Once both have begun, the first one's memory may be written.
  __device__ static void await_others() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
  /// Shared memory of the first block that lies where `address` does in this one's.
  __device__ static uint32_t of_first(uint32_t address) {
    uint32_t mapped;
    asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(mapped) : "r"(address));
    return mapped;
  }
  __device__ static void store(uint32_t address, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
  }
  __device__ static void sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
  }
#else
  __device__ static void begin() {}  // never launched
  __device__ static void await_others() {}
  __device__ static uint32_t of_first(uint32_t address) { return address; }
  __device__ static void store(uint32_t, float) {}
  __device__ static void sync() {}
#endif
};

/// The first token's end, by the warp that has no slice: all it reads beside the sums is there before them, and what
/// the other tokens' ends read too.
template <int kBlocks>
__device__ __forceinline__ void finish_first(const ResidentParams& params, int piece, const SliceSums& sums,
                                             float* scales, OtherInputs& others) {
  const LowbitLinear& linear = params.linear;
  const int lane = threadIdx.x % kWarpSize;
  const OutputColumn column(linear, piece);
  OutputInputs inputs;
  column.read_constants(inputs);
  OutputColumn::Places places = column.places(0);
  keep(places.out), keep(places.halves), keep(places.squares);
  sums.clear_absent(params.slices.count, linear.num_rows);
  wait_for_predecessors();
  column.read_residual(0, inputs);
  if (linear.num_rows > 1) column.leave_others(inputs, others);
  float scale = 1;
  if (linear.input_norm.squares) {
    scale = input_scale<8>(linear, min(lane / 4, linear.num_rows - 1));
    if (lane % 4 == 0) scales[lane / 4] = scale;
    scale = __shfl_sync(~0u, scale, 0);
  }
  Meeting<kBlocks>::await_others();
  Meeting<kBlocks>::sync();
  column.write(places, sums.total(0), scale, inputs);
}

/// The other tokens' end, a warp each.
__device__ __forceinline__ void finish_others(const ResidentParams& params, int piece, int num_warps,
                                              const SliceSums& sums, const float* scales, const OtherInputs& others) {
  const LowbitLinear& linear = params.linear;
  const OutputColumn column(linear, piece);
#pragma unroll 1
  for (int token = threadIdx.x / kWarpSize + 1; token < linear.num_rows; token += num_warps) {
    const float scale = linear.input_norm.squares ? scales[token] : 1.0f;
    column.write(column.places(token), sums.total(token), scale, others.of_token(token));
  }
}

template <class Format, int kBlocks>
__device__ __forceinline__ void run_few_rows(const ResidentParams& params, uint8_t* shared) {
  Meeting<kBlocks>::begin();
  const BlockPlace<kBlocks> block(params);
  const int warp = uniform_warp();
  auto* const scales = reinterpret_cast<float*>(shared + ResidentLayout::kScales);
  const SliceSums sums = {reinterpret_cast<float*>(shared + params.layout.sums)};
  auto& others = *reinterpret_cast<OtherInputs*>(shared + params.layout.inputs);
  if (warp >= block.num_slices) {
    if (block.rank == 0 && warp == block.num_slices) {
      return finish_first<kBlocks>(params, block.piece, sums, scales, others);
    }
    Meeting<kBlocks>::await_others();
    return Meeting<kBlocks>::sync();
  }
  const FewRowsSlice<Format> slice(params, block, shared, warp);
  slice.load_weights();
  uint32_t place = sums.lane_place(block.first_slice + warp);
  keep(place);
  float4 totals[kTilesPerPiece] = {};
  slice.multiply(totals);
  Meeting<kBlocks>::await_others();
  SliceSums::leave<Meeting<kBlocks>>(Meeting<kBlocks>::of_first(place), params.linear.num_rows, totals);
  Meeting<kBlocks>::sync();
  if (params.linear.num_rows > 1 && block.rank == 0) {
    finish_others(params, block.piece, block.num_slices, sums, scales, others);
  }
}

}  // namespace pilotfish::cuda
