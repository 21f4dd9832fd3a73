// Rows of a repacked weight back to f32: the embedding, which may share its weight with the output head.
#include "common.cuh"
#include "half_format.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 256;

/// Where a column of a row lies in a chunk: the inverse of the order that lowbit_repack.cu writes.
struct Place {
  int tile;    // of the piece
  int row;     // of the tile
  int block;   // of the chunk: which scale
  int vector;  // half chunk
  int step;    // of 16 columns, of the half chunk
  int lane;
  int pair;       // (row half) + 2 (column half of the step)
  int neighbour;  // even or odd column

  template <class Format>
  __device__ static Place of(int row_in_piece, int column_in_chunk) {
    Place place;
    place.tile = row_in_piece / kTileRows;
    place.row = row_in_piece % kTileRows;
    place.block = column_in_chunk / kBlockColumns;
    constexpr int kVectorColumns = Format::kChunkColumns / 2;
    place.vector = column_in_chunk / kVectorColumns;
    place.step = column_in_chunk % kVectorColumns / kStepColumns;
    const int column = column_in_chunk % kStepColumns;
    place.lane = place.row % 8 * 4 + column % 8 / 2;
    place.pair = place.row / 8 + column / 8 * 2;
    place.neighbour = column % 2;
    return place;
  }
  __device__ const uint32_t* words(const uint8_t* piece) const {
    return reinterpret_cast<const uint32_t*>(piece) + ((tile * 2 + vector) * kWarpSize + lane) * kWordsPerVector;
  }
};

/// The signed integer that the scale multiplies; unsigned where an offset follows.
template <class Format>
__device__ float integer_at(const uint8_t* piece, const Place& place);

template <>
__device__ float integer_at<Int4>(const uint8_t* piece, const Place& place) {
  const uint32_t word = __ldg(place.words(piece) + place.step);
  return static_cast<float>(__funnelshift_r(word, word, 2 + place.pair * 4 + place.neighbour * 16) & 15) - 8.0f;
}
template <>
__device__ float integer_at<Int4Asym>(const uint8_t* piece, const Place& place) {
  return integer_at<Int4>(piece, place) + 8.0f;
}
template <>
__device__ float integer_at<Int8>(const uint8_t* piece, const Place& place) {
  const uint32_t word = __ldg(place.words(piece) + place.step * 2 + place.pair / 2);
  return static_cast<float>(word >> (place.pair % 2 * 16 + place.neighbour * 8) & 255) - 128.0f;
}

template <class Format>
__device__ float half_at(const uint8_t* piece, const Place& place, int plane) {
  const auto* halves = reinterpret_cast<const __half*>(piece + kIntegerBytes + plane * Format::kScaleBytes);
  return __half2float(
      __ldg(halves + ((place.tile * 8 + place.row % 8) * 2 + place.row / 8) * Format::kBlocks + place.block));
}

template <class Format>
__device__ float weight_at(const uint8_t* piece, int row, int column) {
  const Place place = Place::of<Format>(row, column);
  const float value = __fmul_rn(half_at<Format>(piece, place, 0), integer_at<Format>(piece, place));
  if constexpr (Format::kHasOffsets) {
    return __fadd_rn(value, half_at<Format>(piece, place, 1));
  } else {
    return value;
  }
}
template <>
__device__ float weight_at<Half>(const uint8_t* piece, int row, int column) {
  return __half2float(__ldg(reinterpret_cast<const __half*>(piece + Half::place(row, column))));
}

/// The copy for the linear that comes next; a warp holds the 32 columns of one sum of squares.
__device__ void leave_next(const NextInput& next, size_t index, int column, int num_columns, float value) {
  const bool exists = column < num_columns;
  if (exists) {
    const float weight = next.weight ? __ldg(next.weight + column) : 1.0f;
    static_cast<__half*>(next.halves)[index] = saturated_half(value * weight);
  }
  if (!next.weight) return;
  float squares = value * value;
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) squares += __shfl_xor_sync(~0u, squares, offset);
  if (!exists || threadIdx.x % kWarpSize != 0) return;
  next.squares[static_cast<size_t>(blockIdx.x) * num_square_parts(num_columns) + column / kWarpSize] = squares;
}

template <class Format>
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(const uint8_t* weights, UnitGrid grid, int num_ids, int num_columns, const int32_t* ids,
                     float scale, float* out, NextInput next) {
  let_dependents_start();
  wait_for_predecessors();
  const int id = __ldcg(ids + blockIdx.x);
  const int column = blockIdx.y * kThreads + threadIdx.x;
  const bool exists = column < num_columns;
  float value = exists ? __uint_as_float(kNotWritten) : 0.0f;
  if (exists && id >= 0 && id < num_ids) {
    const int piece = id / kPieceRows, group = grid.group_of(piece);
    const size_t index =
        grid.first_piece(group, column / Format::kChunkColumns) + (piece - group * grid.pieces_per_group);
    const uint8_t* at = weights + index * Format::kPieceBytes;
    value = weight_at<Format>(at, id % kPieceRows, column % Format::kChunkColumns) * scale;
  }
  const size_t index = static_cast<size_t>(blockIdx.x) * num_columns + column;
  if (exists) out[index] = value;
  if (next.halves) leave_next(next, index, column, num_columns, value);
}

template <class Format>
cudaError_t launch(const LowbitShape& shape, const void* weights, const int32_t* ids, int num_rows, float scale,
                   float* out, const NextInput& next, cudaStream_t stream) {
  const dim3 grid(num_rows, (shape.in_features + kThreads - 1) / kThreads);
  return launch_early(embedding_kernel<Format>, grid, kThreads, 0, stream, static_cast<const uint8_t*>(weights),
                      unit_grid<Format>(shape), shape.out_features, shape.in_features, ids, scale, out, next);
}

}  // namespace

cudaError_t launch_embedding(const LowbitShape& shape, const void* weights, const int32_t* ids, int num_rows,
                             float scale, float* out, const NextInput& next, cudaStream_t stream) {
  if (num_rows < 1) return cudaErrorInvalidValue;
  switch (shape.format) {
    case WeightFormat::kInt4:
      return launch<Int4>(shape, weights, ids, num_rows, scale, out, next, stream);
    case WeightFormat::kInt4Asym:
      return launch<Int4Asym>(shape, weights, ids, num_rows, scale, out, next, stream);
    case WeightFormat::kF16:
      return launch<Half>(shape, weights, ids, num_rows, scale, out, next, stream);
    case WeightFormat::kInt8:
      break;
  }
  return launch<Int8>(shape, weights, ids, num_rows, scale, out, next, stream);
}

}  // namespace pilotfish::cuda
