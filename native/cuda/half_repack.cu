// f16 weights of a bundle (GRAPH.md: tiles of 16 rows, groups of [64 columns][16 rows]) -> the pieces of
// half_format.cuh. Runs once a tensor, at load.
#include "half_format.cuh"
#include "half_linear.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kThreads = 256;

/// One thread moves one weight; rows and columns past the bundle's are zeros.
__global__ void half_repack_kernel(const uint16_t* packed, int num_tiles, int num_groups, uint8_t* weights,
                                   UnitGrid grid) {
  constexpr int kPieceWeights = kPieceRows * Half::kChunkColumns;
  const int piece = blockIdx.x, chunk = blockIdx.y;
  const int group = grid.group_of(piece);
  uint8_t* const target =
      weights + (grid.first_piece(group, chunk) + piece - group * grid.pieces_per_group) * Half::kPieceBytes;
  for (int i = threadIdx.x; i < kPieceWeights; i += kThreads) {
    const int row = i % kTileRows + i / (kPieceWeights / kTilesPerPiece) * kTileRows;
    const int column = i % (kPieceWeights / kTilesPerPiece) / kTileRows;
    const int tile = piece * kTilesPerPiece + row / kTileRows;
    const size_t source =
        ((static_cast<size_t>(tile) * num_groups + chunk) * Half::kChunkColumns + column) * kTileRows + row % kTileRows;
    *reinterpret_cast<uint16_t*>(target + Half::place(row, column)) =
        tile < num_tiles && chunk < num_groups ? packed[source] : uint16_t{0};
  }
}

}  // namespace

cudaError_t repack_half(const LowbitShape& shape, const void* packed, void* weights_out, cudaStream_t stream) {
  const UnitGrid grid = unit_grid<Half>(shape);
  const int num_tiles = (shape.out_features + kTileRows - 1) / kTileRows;
  half_repack_kernel<<<dim3(grid.num_pieces, grid.num_chunks), kThreads, 0, stream>>>(
      static_cast<const uint16_t*>(packed), num_tiles, grid.num_chunks, static_cast<uint8_t*>(weights_out), grid);
  return cudaGetLastError();
}

}  // namespace pilotfish::cuda
