// A warpgroup's product of 64 weight rows with up to 64 tokens, the weights as exact integers: every sum is added in
// ascending order of the columns, 32 (one scale) at a time. The tensor cores read the activations from shared memory
// themselves (wgmma, 9.0a); the bits are those of mma.sync.
#pragma once

#include "common.cuh"
#include "lowbit_format.cuh"
#include "lowbit_multiply.cuh"
#include "lowbit_stage.cuh"

namespace pilotfish::cuda {

// ---- wgmma ----

/// A matrix descriptor: tokens' columns in shared memory, rows of 128 bytes in groups of eight, vectors exchanged.
class TokenColumns {
 public:
  /// Taken from one lane, so that the compiler knows it to be the same in all.
  __device__ explicit TokenColumns(uint32_t address) : low_(__shfl_sync(~0u, 1u << 16 | (address & 0x3FFFF) >> 4, 0)) {}

  /// The columns that lie so many bytes behind.
  __device__ uint64_t behind(int num_bytes) const {
    constexpr uint32_t kExchangedIn128Bytes = 1u << 30, kGroupBytes = 1024;
    return static_cast<uint64_t>(kExchangedIn128Bytes | kGroupBytes / 16) << 32 | (low_ + num_bytes / 16);
  }

 private:
  uint32_t low_;
};

/// d = a b, or d += a b where it `adds`: this warp's 16 rows, 16 columns, eight tokens a float4. It ends later, in
/// order.
__device__ __forceinline__ void multiply_async(float4 (&d)[1], const uint32_t (&a)[4], uint64_t b, int adds) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{ .reg .pred adds;\n"
      "setp.ne.b32 adds, %9, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, %8, adds, 1, 1, 0; }"
      : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
#endif
}
__device__ __forceinline__ void multiply_async(float4 (&d)[2], const uint32_t (&a)[4], uint64_t b, int adds) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{ .reg .pred adds;\n"
      "setp.ne.b32 adds, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, %12, adds, 1, 1, 0; }"
      : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x), "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
#endif
}
__device__ __forceinline__ void multiply_async(float4 (&d)[4], const uint32_t (&a)[4], uint64_t b, int adds) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{ .reg .pred adds;\n"
      "setp.ne.b32 adds, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15}, "
      "{%16, %17, %18, %19}, %20, adds, 1, 1, 0; }"
      : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x), "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w),
        "+f"(d[2].x), "+f"(d[2].y), "+f"(d[2].z), "+f"(d[2].w), "+f"(d[3].x), "+f"(d[3].y), "+f"(d[3].z), "+f"(d[3].w)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
#endif
}

__device__ __forceinline__ void begin_multiplications() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void commit_multiplications() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/// Returns when all have ended; `sums` are what they write.
template <int kCount>
__device__ __forceinline__ void wait_for_multiplications(float4 (&sums)[kCount]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
#pragma unroll
  for (float4& sum : sums) asm volatile("" : "+f"(sum.x), "+f"(sum.y), "+f"(sum.z), "+f"(sum.w)::"memory");
}

// ---- a chunk ----

/// Integers and scales of one warp's 16 rows.
template <class Format>
class TileWeights {
 public:
  /// `tile` of the piece's two.
  __device__ __forceinline__ TileWeights(const uint8_t* piece, int tile) {
    using ScaleVector = typename Format::ScaleVector;
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int vector = 0; vector < 2; ++vector) {
      *reinterpret_cast<uint4*>(words_[vector]) =
          reinterpret_cast<const uint4*>(piece)[(tile * 2 + vector) * kWarpSize + lane];
    }
    const auto* scales = reinterpret_cast<const ScaleVector*>(piece + kIntegerBytes) + tile * 8 + lane / 4;
    *reinterpret_cast<ScaleVector*>(scale_) = *scales;
    if constexpr (Format::kHasOffsets) {
      *reinterpret_cast<ScaleVector*>(offset_) = scales[Format::kScaleBytes / sizeof(ScaleVector)];
    }
  }

  __device__ __forceinline__ void unpack(int block, uint32_t (&operands)[2][4]) const {
    constexpr int kBlocksPerVector = Format::kBlocks / 2;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      Format::unpack(operands[step], words_[block / kBlocksPerVector], block % kBlocksPerVector * 2 + step);
      remove_offsets<Format>(operands[step]);
    }
  }
  __device__ __forceinline__ float scale(int half, int block) const { return __half2float(scale_[half][block]); }
  __device__ __forceinline__ float offset(int half, int block) const { return __half2float(offset_[half][block]); }

 private:
  alignas(16) uint32_t words_[2][kWordsPerVector];
  alignas(16) __half scale_[2][Format::kBlocks];
  alignas(16) __half offset_[2][Format::kHasOffsets ? Format::kBlocks : 1];
};

/// Lets the compiler not compute operands later than here.
__device__ __forceinline__ void keep_here(uint32_t (&operands)[2][4]) {
#pragma unroll
  for (auto& step : operands) {
    asm volatile("" : "+r"(step[0]), "+r"(step[1]), "+r"(step[2]), "+r"(step[3]));
  }
}

/// Sums of the activations of 32 columns, from which a format's offsets follow: as offset_sums() makes them.
template <class Format, int kTiles>
__device__ __forceinline__ void sum_activations(const TokenColumns& columns, int offset, float4 (&sums)[kTiles]) {
  constexpr uint32_t kFirst = Format::kOffsets[0], kSecond = Format::kOffsets[1];
  const uint32_t offsets[4] = {kFirst, kSecond, kFirst, kSecond};
  begin_multiplications();
  multiply_async(sums, offsets, columns.behind(offset), 0);
  multiply_async(sums, offsets, columns.behind(offset + 32), 1);
  commit_multiplications();
  wait_for_multiplications(sums);
}

/// Adds one chunk of columns to one warp's 16 rows of its warpgroup's 64, up to 32 tokens at a time. While the tensor
/// cores multiply, the next columns are unpacked. `activations` is a shared-memory address.
template <class Format, class Shape>
__device__ __forceinline__ void multiply_chunk_wide(const uint8_t* piece, int tile, uint32_t activations,
                                                    float4 (&sums)[Shape::kTokenTiles]) {
  constexpr int kTiles = Shape::kTokenTiles < 4 ? Shape::kTokenTiles : 4;
  const TokenColumns columns(activations);
  const TileWeights<Format> weights(piece, tile);
  uint32_t operands[2][2][4];
  weights.unpack(0, operands[0]);
#pragma unroll
  for (int block = 0; block < Format::kBlocks; ++block) {
    const float low = weights.scale(0, block), high = weights.scale(1, block);
#pragma unroll
    for (int first = 0; first < Shape::kTokenTiles; first += kTiles) {
      float4 parts[kTiles];
      const int offset = block / 2 * Shape::kTokens * 128 + block % 2 * 64 + first * kTokenTile * 128;
      begin_multiplications();
      multiply_async(parts, operands[block % 2][0], columns.behind(offset), 0);
      multiply_async(parts, operands[block % 2][1], columns.behind(offset + 32), 1);
      commit_multiplications();
      if (first == 0 && block + 1 < Format::kBlocks) {
        weights.unpack(block + 1, operands[(block + 1) % 2]);
        keep_here(operands[(block + 1) % 2]);
      }
      wait_for_multiplications(parts);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) add_scaled(sums[first + i], parts[i], low, high);
      if constexpr (Format::kHasOffsets) {
        sum_activations<Format>(columns, offset, parts);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const float even = parts[i].x * Format::kSumOfOffsetSum, odd = parts[i].y * Format::kSumOfOffsetSum;
          add_scaled(sums[first + i], make_float4(even, odd, even, odd), weights.offset(0, block),
                     weights.offset(1, block));
        }
      }
    }
  }
}

}  // namespace pilotfish::cuda
