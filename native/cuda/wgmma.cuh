// The tensor cores' asynchronous multiplication by a warpgroup (compute capability 9.0a): 64 weight rows, 16 of each
// warp as the operand of mma.m16n8k16 in registers, by 24 to 64 tokens in shared memory. For the same operands it gives
// the bits of mma.m16n8k16. Where the target lacks it nothing calls these.
#pragma once

#include "common.cuh"
#include "lowbit_multiply.cuh"

namespace pilotfish::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif

/// Step `step` of 16 columns of so many token tiles that lie in shared memory as lowbit_multiply.cuh says.
template <int kTokenTiles>
__device__ __forceinline__ uint64_t token_columns(uint32_t activations, int step) {
  constexpr int kMapSteps = kMapColumns / kStepColumns, kMapBytes = kTokenTiles * kTokenTile * kMapRowBytes;
  constexpr uint64_t kTileStride = kTokenTile * kMapRowBytes, kSwizzle128 = uint64_t{1} << 62;
  const uint32_t address = activations + step / kMapSteps * kMapBytes + step % kMapSteps * kStepColumns * 2;
  return (address & 0x3FFFF) >> 4 | (kTileStride >> 4) << 32 | kSwizzle128;
}

/// d = a b, or d += a b where it `adds`; d[i] is of token tile i. Ends later, in order.
__device__ __forceinline__ void multiply_async(float4 (&d)[8], const uint32_t (&a)[4], uint64_t b, int adds) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{ .reg .pred adds;\n"
      "setp.ne.b32 adds, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, adds, 1, 1, 0; }"
      : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x), "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w),
        "+f"(d[2].x), "+f"(d[2].y), "+f"(d[2].z), "+f"(d[2].w), "+f"(d[3].x), "+f"(d[3].y), "+f"(d[3].z), "+f"(d[3].w),
        "+f"(d[4].x), "+f"(d[4].y), "+f"(d[4].z), "+f"(d[4].w), "+f"(d[5].x), "+f"(d[5].y), "+f"(d[5].z), "+f"(d[5].w),
        "+f"(d[6].x), "+f"(d[6].y), "+f"(d[6].z), "+f"(d[6].w), "+f"(d[7].x), "+f"(d[7].y), "+f"(d[7].z), "+f"(d[7].w)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
#endif
}

__device__ __forceinline__ void multiply_async(float4 (&d)[4], const uint32_t (&a)[4], uint64_t b, int adds) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{ .reg .pred adds;\n"
      "setp.ne.b32 adds, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15}, {%16, %17, %18, %19}, %20, adds, 1, 1, 0; }"
      : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x), "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w),
        "+f"(d[2].x), "+f"(d[2].y), "+f"(d[2].z), "+f"(d[2].w), "+f"(d[3].x), "+f"(d[3].y), "+f"(d[3].z), "+f"(d[3].w)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
#endif
}

__device__ __forceinline__ void multiply_async(float4 (&d)[3], const uint32_t (&a)[4], uint64_t b, int adds) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{ .reg .pred adds;\n"
      "setp.ne.b32 adds, %17, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, %16, adds, 1, 1, 0; }"
      : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x), "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w),
        "+f"(d[2].x), "+f"(d[2].y), "+f"(d[2].z), "+f"(d[2].w)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
#endif
}

__device__ __forceinline__ void multiply_async(float4 (&d)[6], const uint32_t (&a)[4], uint64_t b, int adds) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{ .reg .pred adds;\n"
      "setp.ne.b32 adds, %29, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
      "{%24, %25, %26, %27}, %28, adds, 1, 1, 0; }"
      : "+f"(d[0].x), "+f"(d[0].y), "+f"(d[0].z), "+f"(d[0].w), "+f"(d[1].x), "+f"(d[1].y), "+f"(d[1].z), "+f"(d[1].w),
        "+f"(d[2].x), "+f"(d[2].y), "+f"(d[2].z), "+f"(d[2].w), "+f"(d[3].x), "+f"(d[3].y), "+f"(d[3].z), "+f"(d[3].w),
        "+f"(d[4].x), "+f"(d[4].y), "+f"(d[4].z), "+f"(d[4].w), "+f"(d[5].x), "+f"(d[5].y), "+f"(d[5].z), "+f"(d[5].w)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
#endif
}

/// Registers of a thread from here on, for the whole warpgroup: fewer, left to others, or more, once they are there.
template <int kCount>
__device__ __forceinline__ void leave_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}
template <int kCount>
__device__ __forceinline__ void take_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

/// Before the first multiplication, and after its registers were written by other instructions.
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

/// Returns when all but the last kPending committed groups have ended.
template <int kPending>
__device__ __forceinline__ void wait_for_multiplications() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}

/// The compiler does not use these before here.
template <int kCount>
__device__ __forceinline__ void hold(float4 (&values)[kCount]) {
#pragma unroll
  for (float4& value : values) asm volatile("" : "+f"(value.x), "+f"(value.y), "+f"(value.z), "+f"(value.w)::"memory");
}

/// The compiler does not compute these after here.
__device__ __forceinline__ void hold(uint32_t (&operands)[2][4]) {
#pragma unroll
  for (auto& step : operands) asm volatile("" : "+r"(step[0]), "+r"(step[1]), "+r"(step[2]), "+r"(step[3]));
}

}  // namespace pilotfish::cuda
