// How clusters of eight thread blocks divide a low-bit linear: its pieces into parts, K of each part into slices. The
// blocks of a cluster that have the same part each multiply one slice of it.
#pragma once

#include "lowbit_format.cuh"

namespace pilotfish::cuda {

inline constexpr int kClusterBlocks = 8;

/// What one block multiplies: pieces in batches of one size (the last may have fewer), each over the same chunks.
struct ClusterShare {
  int slice;
  int first_piece, num_pieces;
  int first_chunk, num_chunks;
  int num_batches;
  int batch_pieces;

  __host__ __device__ int first_of_batch(int batch) const { return first_piece + batch * batch_pieces; }
  __host__ __device__ int pieces_of_batch(int batch) const {
    const int left = num_pieces - batch * batch_pieces;
    return left < batch_pieces ? left : batch_pieces;
  }
};

struct ClusterGrid {
  UnitGrid units;
  int num_slices;  // divides kClusterBlocks
  int num_parts;

  __host__ __device__ int num_blocks() const { return num_parts * num_slices; }
  __host__ __device__ int first_chunk(int slice) const { return slice * units.num_chunks / num_slices; }
  __host__ __device__ int first_piece(int part) const {
    return static_cast<int>(static_cast<int64_t>(part) * units.num_pieces / num_parts);
  }
  /// At most `most_pieces` pieces a batch.
  __host__ __device__ ClusterShare share(int block, int most_pieces) const {
    ClusterShare share;
    const int part = block / num_slices;
    share.slice = block % num_slices;
    share.first_piece = first_piece(part);
    share.num_pieces = first_piece(part + 1) - share.first_piece;
    share.first_chunk = first_chunk(share.slice);
    share.num_chunks = first_chunk(share.slice + 1) - share.first_chunk;
    share.num_batches = (share.num_pieces + most_pieces - 1) / most_pieces;
    share.batch_pieces = (share.num_pieces + share.num_batches - 1) / share.num_batches;
    return share;
  }
  /// Of the busiest block.
  int pieces_of_busiest() const { return (units.num_pieces + num_parts - 1) / num_parts; }
  int chunks_of_busiest() const { return (units.num_chunks + num_slices - 1) / num_slices; }
};

struct ClusterParams {
  LowbitLinear linear;
  ClusterGrid grid;
  int num_stages;      // ring length
  int num_buffers;     // for sums of other blocks: lowbit_cluster_exchange.cuh
  int resident_bytes;  // of activations
};

}  // namespace pilotfish::cuda
