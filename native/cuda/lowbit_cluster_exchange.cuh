// How the blocks of a cluster exchange sums: each owns some pieces of a batch and receives their sums from all blocks
// of its part in its own shared memory, where it adds them in the order of K. Compute capability 9.0 and later.
#pragma once

#include "common.cuh"
#include "kernels.h"
#include "lowbit_cluster_grid.cuh"
#include "lowbit_combine.cuh"
#include "lowbit_multiply.cuh"

namespace pilotfish::cuda {

// ---- what PTX has for clusters ----

__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/// Where a shared-memory address of this block lies in another block of the cluster.
__device__ __forceinline__ uint32_t address_in_block(uint32_t address, int rank) {
  uint32_t result = 0;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
#endif
  return result;
}

/// Two floats into a block of the cluster; they count as 8 bytes at its barrier once they are there.
__device__ __forceinline__ void send(uint32_t target, float first, float second, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(target),
               "f"(first), "f"(second), "r"(barrier)
               : "memory");
#endif
}

/// Arrives at a barrier of any block of the cluster.
__device__ __forceinline__ void barrier_arrive_in_cluster(uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}

/// Arrives at a barrier of this block that then also waits for so many bytes.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int num_bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
#endif
}

/// barrier_wait() for what other blocks of the cluster wrote.
__device__ __forceinline__ void barrier_wait_in_cluster(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
#endif
}

/// A piece of what a barrier already waits for, by the copy engine.
__device__ __forceinline__ void copy_bulk_expected(uint32_t target, const void* source, int num_bytes, uint32_t barrier,
                                                   uint64_t policy) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(target),
      "l"(source), "r"(num_bytes), "r"(barrier), "l"(policy)
      : "memory");
#endif
}

// ---- the exchange ----

/// Floats between the rows of a received piece: twice an odd number, so that a warp that reads 32 rows meets a bank
/// twice at most, and pairs of tokens stay aligned.
__host__ __device__ constexpr int received_row_floats(int num_rows) { return ((num_rows + 1) / 2 | 1) * 2; }

/// One buffer: [pieces owned][slices][32 weight rows][tokens]; the first two are a multiple of eight together.
__host__ __device__ constexpr int received_bytes(int num_rows, int most_owned) {
  return most_owned * kClusterBlocks * kPieceRows * received_row_floats(num_rows) * 4;
}

/// One block's side of the exchange. A batch's buffer is used again num_buffers() batches later: its owner then gives
/// every sender a credit.
struct Exchange {
  static constexpr int kMostBuffers = 2;
  static constexpr int kBarrierBytes = kMostBuffers * (1 + kClusterBlocks) * 8;

  const ClusterParams& params;
  uint32_t barriers;  // shared-memory addresses
  uint32_t buffers;
  int most_owned;  // pieces of a batch, of eight slices

  __device__ int num_rows() const { return params.linear.num_rows; }
  __device__ int num_buffers() const { return params.num_buffers; }
  __device__ int num_slices() const { return params.grid.num_slices; }  // a power of two
  __device__ int slices_shift() const { return 31 - __clz(num_slices()); }
  __device__ int slice() const { return static_cast<int>(blockIdx.x) & (num_slices() - 1); }
  /// The buffer of a batch, and how often it has been used before; there are one or two.
  __device__ int index(int batch) const { return batch & (num_buffers() - 1); }
  __device__ int turn(int batch) const { return batch >> (num_buffers() - 1); }
  __device__ uint32_t received(int buffer) const { return barriers + buffer * 8; }
  __device__ uint32_t credit(int owner, int batch) const {
    return barriers + (kMostBuffers + owner * kMostBuffers + index(batch)) * 8;
  }
  __device__ uint32_t buffer(int batch) const {
    return buffers + index(batch) * received_bytes(num_rows(), most_owned);
  }
  /// Rank in the cluster of the block that has slice `other` of this block's part.
  __device__ int rank(int other) const { return static_cast<int>(blockIdx.x) % kClusterBlocks - slice() + other; }

  /// By one thread.
  __device__ void init(const ClusterShare& share, int num_warps) const {
    for (int i = 0; i < num_buffers(); ++i) {
      barrier_init(received(i), 1);
      expect(share, i);
    }
    for (int owner = 0; owner < num_slices(); ++owner) {
      for (int batch = 0; batch < num_buffers(); ++batch) barrier_init(credit(owner, batch), num_warps);
    }
  }

  /// Pieces of a batch that this block owns: its slice, slice + num_slices, ... In a last batch there may be none.
  __device__ int num_owned(const ClusterShare& share, int batch) const {
    if (batch >= share.num_batches) return 0;
    return (share.pieces_of_batch(batch) - slice() + num_slices() - 1) >> slices_shift();
  }

  /// Of nothing, no barrier's phase may end: a warp could still wait for the one before.
  __device__ void expect(const ClusterShare& share, int batch) const {
    const int bytes_of_piece = num_slices() * kPieceRows * ((num_rows() + 1) / 2) * 8;
    const int count = num_owned(share, batch);
    if (count > 0) barrier_expect(received(index(batch)), count * bytes_of_piece);
  }

  /// Sends the sums of one row tile of a piece and token tiles [first_tile, first_tile + kTokenTiles).
  template <int kTokenTiles>
  __device__ void send_sums(int batch, int piece, int row_tile, int first_tile,
                            const float4 (&sums)[kTokenTiles]) const {
    const int lane = threadIdx.x % kWarpSize, owner = piece & (num_slices() - 1);
    const int row_bytes = received_row_floats(num_rows()) * 4;
    const int row = (piece - owner + slice()) * kPieceRows + row_tile * kTileRows + lane / 4;
    const int token = first_tile * kTokenTile + lane % 4 * 2;
    const uint32_t target = address_in_block(buffer(batch), rank(owner)) + row * row_bytes + token * 4;
    const uint32_t barrier = address_in_block(received(index(batch)), rank(owner));
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      if (token + i * kTokenTile >= num_rows()) continue;
      send(target + i * kTokenTile * 4, sums[i].x, sums[i].y, barrier);
      send(target + i * kTokenTile * 4 + kTileRows / 2 * row_bytes, sums[i].z, sums[i].w, barrier);
    }
  }

  /// Returns when the owner of a piece has room for the sums of a batch.
  __device__ void wait_for_credit(int batch, int piece) const {
    if (batch < num_buffers()) return;
    barrier_wait_in_cluster(credit(piece & (num_slices() - 1), batch), (turn(batch) - 1) % 2);
  }

  __device__ void wait(int batch) const { barrier_wait_in_cluster(received(index(batch)), turn(batch) % 2); }

  /// What has been received for one weight row (this lane's) and token, added in the order of K.
  __device__ float total(int batch, int owned, int token) const {
    const int row_floats = received_row_floats(num_rows());
    const uint32_t source =
        buffer(batch) +
        ((owned * num_slices() * kPieceRows + static_cast<int>(threadIdx.x % kWarpSize)) * row_floats + token) * 4;
    float parts[kClusterBlocks];
#pragma unroll
    for (int i = 0; i < kClusterBlocks; ++i) {
      if (i < num_slices()) parts[i] = load_shared(source + i * kPieceRows * row_floats * 4);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kClusterBlocks; ++i) {
      if (i < num_slices()) sum += parts[i];
    }
    return sum;
  }

  /// By each warp once it has read a batch that is followed by another in the same buffer.
  __device__ void release(const ClusterShare& share, int batch) const {
    if (num_owned(share, batch + num_buffers()) == 0) return;
    if (threadIdx.x == 0) expect(share, batch + num_buffers());
    __syncwarp();
    const int lane = threadIdx.x % kWarpSize;
    if (lane < num_slices()) barrier_arrive_in_cluster(address_in_block(credit(slice(), batch), rank(lane)));
  }

 private:
  __device__ static float load_shared(uint32_t address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
  }
};

}  // namespace pilotfish::cuda
