// Packed weights of a bundle (GRAPH.md) -> the pieces of lowbit_format.cuh. Runs once a tensor, at load.
#include "common.cuh"
#include "half_linear.cuh"
#include "kernels.h"
#include "lowbit_format.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroupColumns = 64;  // of the bundle's layout

/// Reads one weight of the bundle as its unsigned integer; padding reads as zero, which is the format's offset.
struct PackedInt4 {
  static constexpr int kGroupBytes = 576;
  static constexpr int kIntegers = 512;
  static constexpr uint32_t kZero = 8;
  static constexpr int kBits = 4;
  __device__ static uint32_t integer(const uint8_t* group, int row, int column) {
    const int block = column / kBlockColumns, in_block = column % kBlockColumns;
    const int quad = in_block % 16 / 4;
    const uint32_t byte = group[((block * 4 + quad) * kTileRows + row) * 4 + in_block % 4];
    return in_block < 16 ? byte & 15 : byte >> 4;
  }
};

struct PackedInt4Asym : PackedInt4 {
  static constexpr int kGroupBytes = 640;
  static constexpr uint32_t kZero = 0;
};

struct PackedInt8 {
  static constexpr int kGroupBytes = 1088;
  static constexpr int kIntegers = 1024;
  static constexpr uint32_t kZero = 128;
  static constexpr int kBits = 8;
  __device__ static uint32_t integer(const uint8_t* group, int row, int column) {
    const int block = column / kBlockColumns, in_block = column % kBlockColumns;
    return group[((block * 8 + in_block / 4) * kTileRows + row) * 4 + in_block % 4];
  }
};

template <class Packed>
struct Source {
  const uint8_t* packed;
  int num_tiles;   // of 16 rows
  int num_groups;  // of 64 columns, a tile

  __device__ const uint8_t* group(int tile, int column) const {
    if (tile >= num_tiles || column >= num_groups * kGroupColumns) return nullptr;
    return packed + (static_cast<size_t>(tile) * num_groups + column / kGroupColumns) * Packed::kGroupBytes;
  }
  __device__ uint32_t integer(int tile, int row, int column) const {
    const uint8_t* at = group(tile, column);
    return at ? Packed::integer(at, row, column % kGroupColumns) : Packed::kZero;
  }
  /// f16 bits; `plane` 0 is the scale, 1 the offset.
  __device__ uint16_t scale(int plane, int tile, int row, int column) const {
    const uint8_t* at = group(tile, column);
    if (!at) return 0;
    const int block = column % kGroupColumns / kBlockColumns;
    return reinterpret_cast<const uint16_t*>(at + Packed::kIntegers)[(plane * 2 + block) * kTileRows + row];
  }
};

/// Rows and columns of one mma step in the order of a lane's operand: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t +
/// 8), each with its right neighbour. `pair` counts these, `neighbour` is 0 or 1.
struct OperandPlace {
  int row;
  int column;
};
__device__ OperandPlace operand_place(int lane, int pair, int neighbour) {
  return {lane / 4 + pair % 2 * 8, lane % 4 * 2 + pair / 2 * 8 + neighbour};
}

template <class Format, class Packed>
__device__ uint32_t operand_word(const Source<Packed>& source, int tile, int first_column, int lane, int word_index) {
  uint32_t word = 0;
  if constexpr (Packed::kBits == 4) {  // a word is a step; Int4 names the bits
    for (int nibble = 0; nibble < 8; ++nibble) {
      const OperandPlace place = operand_place(lane, nibble % 4, nibble / 4);
      const uint32_t integer = source.integer(tile, place.row, first_column + word_index * kStepColumns + place.column);
      const int first_bit = 2 + nibble % 4 * 4 + nibble / 4 * 16;
      word |= __funnelshift_l(integer, integer, first_bit);
    }
  } else {  // two words are a step
    for (int byte = 0; byte < 4; ++byte) {
      const OperandPlace place = operand_place(lane, word_index % 2 * 2 + byte / 2, byte % 2);
      word |= source.integer(tile, place.row, first_column + word_index / 2 * kStepColumns + place.column)
              << (8 * byte);
    }
  }
  return word;
}

/// One thread writes one word of integers and, where there is one, one scale.
template <class Format, class Packed>
__global__ void repack_kernel(Source<Packed> source, uint8_t* weights, UnitGrid grid) {
  constexpr int kWordsPerPiece = kIntegerBytes / 4;
  constexpr int kScalesPerPiece = kPieceRows * Format::kBlocks;
  const size_t index = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
  const size_t piece = index / kWordsPerPiece;
  if (piece >= static_cast<size_t>(grid.num_pieces) * grid.num_chunks) return;
  const int word = index % kWordsPerPiece;
  const int group = static_cast<int>(piece / (grid.pieces_per_group * grid.num_chunks));
  const int in_group = static_cast<int>(piece - grid.first_piece(group, 0));
  const int pieces_of_group = grid.pieces_of_group(group);
  const int first_tile = (group * grid.pieces_per_group + in_group % pieces_of_group) * kTilesPerPiece;
  const int first_column = in_group / pieces_of_group * Format::kChunkColumns;
  uint8_t* target = weights + piece * Format::kPieceBytes;

  // [tile][vector][lane][word]
  const int vector = word / (kWarpSize * kWordsPerVector);
  reinterpret_cast<uint32_t*>(target)[word] =
      operand_word<Format>(source, first_tile + vector / 2, first_column + vector % 2 * (Format::kChunkColumns / 2),
                           word / kWordsPerVector % kWarpSize, word % kWordsPerVector);

  if (word < kScalesPerPiece * (Format::kHasOffsets ? 2 : 1)) {  // [plane][tile][g][row half][block]
    const int block = word % Format::kBlocks;
    const int row = word / (2 * Format::kBlocks) % 8 + word / Format::kBlocks % 2 * 8;
    const int tile = first_tile + word / (kTileRows * Format::kBlocks) % kTilesPerPiece;
    reinterpret_cast<uint16_t*>(target + kIntegerBytes)[word] =
        source.scale(word / kScalesPerPiece, tile, row, first_column + block * kBlockColumns);
  }
}

template <class Format, class Packed>
cudaError_t repack(const LowbitShape& shape, const void* packed, void* weights_out, cudaStream_t stream) {
  const Source<Packed> source = {static_cast<const uint8_t*>(packed), (shape.out_features + kTileRows - 1) / kTileRows,
                                 (shape.in_features + kGroupColumns - 1) / kGroupColumns};
  const UnitGrid grid = unit_grid<Format>(shape);
  const size_t num_words = static_cast<size_t>(grid.num_pieces) * grid.num_chunks * (kIntegerBytes / 4);
  repack_kernel<Format><<<static_cast<unsigned>((num_words + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      source, static_cast<uint8_t*>(weights_out), grid);
  return cudaGetLastError();
}

}  // namespace

cudaError_t repack_lowbit(const LowbitShape& shape, const void* packed, void* weights_out, cudaStream_t stream) {
  switch (shape.format) {
    case WeightFormat::kInt4:
      return repack<Int4, PackedInt4>(shape, packed, weights_out, stream);
    case WeightFormat::kInt4Asym:
      return repack<Int4Asym, PackedInt4Asym>(shape, packed, weights_out, stream);
    case WeightFormat::kF16:
      return repack_half(shape, packed, weights_out, stream);
    case WeightFormat::kInt8:
      break;
  }
  return repack<Int8, PackedInt8>(shape, packed, weights_out, stream);
}

}  // namespace pilotfish::cuda
