// The few PTX instructions that the kernels are built from: barriers, asynchronous copies, tensor-core operands and
// programmatic dependent launch. Knows no operator.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace pilotfish::cuda {

inline constexpr int kWarpSize = 32;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- mbarriers ----

__device__ __forceinline__ void barrier_init(uint32_t barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals) : "memory");
}

/// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}

/// Arrives once all earlier cp.async of this thread have landed.
__device__ __forceinline__ void barrier_arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
#else
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
#endif
}

// ---- copies from global to shared memory ----

/// 16 bytes past L1; the last 16 - `valid_bytes` are written as zeros.
__device__ __forceinline__ void copy_16(uint32_t target, const void* source, int valid_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(valid_bytes) : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Returns when all but the last kPending committed groups of this thread have landed.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

#if __CUDA_ARCH__ >= 900
/// One contiguous piece (16-byte multiples) by the copy engine; arrives at the barrier once it has landed.
__device__ __forceinline__ void copy_bulk(uint32_t target, const void* source, int num_bytes, uint32_t barrier,
                                          uint64_t policy) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(target),
      "l"(source), "r"(num_bytes), "r"(barrier), "l"(policy)
      : "memory");
}
#endif

__device__ __forceinline__ void store_word(uint32_t target, uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(target), "r"(word) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t target, const float4& value) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(target), "f"(value.x), "f"(value.y), "f"(value.z),
               "f"(value.w)
               : "memory");
}

// ---- values that carry their own arrival ----

/// No sum has these bits: arithmetic makes only the NaN 0x7FFFFFFF.
inline constexpr uint32_t kNotWritten = 0xFFFFFFFF;

__device__ __forceinline__ void store_relaxed(float4* target, const float4& value) {
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(target), "f"(value.x), "f"(value.y),
               "f"(value.z), "f"(value.w)
               : "memory");
}

__device__ __forceinline__ void store_relaxed(float2* target, const float2& value) {
  asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(target), "f"(value.x), "f"(value.y) : "memory");
}

__device__ __forceinline__ float4 load_relaxed(const float4* source) {
  float4 value;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(source)
               : "memory");
  return value;
}

__device__ __forceinline__ float2 load_relaxed(const float2* source) {
  float2 value;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(source) : "memory");
  return value;
}

__device__ __forceinline__ bool is_written(const float2& value) {
  return __float_as_uint(value.x) != kNotWritten && __float_as_uint(value.y) != kNotWritten;
}

__device__ __forceinline__ bool is_written(const float4& value) {
  return __float_as_uint(value.x) != kNotWritten && __float_as_uint(value.y) != kNotWritten &&
         __float_as_uint(value.z) != kNotWritten && __float_as_uint(value.w) != kNotWritten;
}

// ---- programmatic dependent launch ----

/// Lets the next kernel of the stream start; it waits for this one's results itself.
__device__ __forceinline__ void let_dependents_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Returns when every earlier kernel of the stream has ended and its writes are visible. What an earlier kernel wrote
/// is read past L1 all the same: lines cached there by a neighbour block may be older than this wait.
__device__ __forceinline__ void wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Code built for 9.0 and later waits for its predecessors itself; older code must not be started early.
template <class Kernel>
cudaError_t starts_early(Kernel kernel, bool* early_out) {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  *early_out = status == cudaSuccess && attributes.ptxVersion >= 90;
  return status;
}

/// Launches a kernel that begins with wait_for_predecessors(), before its predecessor has ended where that is possible,
/// in clusters of `cluster_blocks` blocks.
template <class... Parameters, class... Arguments>
cudaError_t launch_early_in_clusters(void (*kernel)(Parameters...), dim3 grid, int cluster_blocks, int num_threads,
                                     size_t shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  bool early = false;
  if (const cudaError_t status = starts_early(kernel, &early); status != cudaSuccess) return status;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(num_threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (early) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster_blocks > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(cluster_blocks), 1, 1};
  }
  constexpr size_t kDefaultSharedBytes = 48 << 10;
  if (shared_bytes > kDefaultSharedBytes) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (status != cudaSuccess) return status;
  }
  // The same division of L1 for all: a multiprocessor must run empty before it can be divided anew.
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
      status != cudaSuccess) {
    return status;
  }
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

template <class... Parameters, class... Arguments>
cudaError_t launch_early(void (*kernel)(Parameters...), dim3 grid, int num_threads, size_t shared_bytes,
                         cudaStream_t stream, const Arguments&... arguments) {
  return launch_early_in_clusters(kernel, grid, 1, num_threads, shared_bytes, stream, arguments...);
}

// ---- f16 ----

inline constexpr float kMaxHalf = 65504.0f;

/// The nearest f16, of a larger number the largest. What is no number stays none: a linear that reads it gives none.
__device__ __forceinline__ __half saturated_half(float value) {
  const __half most = __ushort_as_half(0x7bff);  // kMaxHalf
  return __hmax_nan(__hmin_nan(__float2half_rn(value), most), __hneg(most));
}

/// The same for a cache, whose blocks other sequences get after this one: a number also of what is none.
__device__ __forceinline__ __half finite_half(float value) {
  return __float2half_rn(fminf(fmaxf(value, -kMaxHalf), kMaxHalf));
}

// ---- tensor cores ----

/// Four 8x8 f16 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&fragment)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address)
               : "memory");
}

/// The same, each matrix transposed.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&fragment)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address)
               : "memory");
}

/// a[16 x 16] b[16 x 8] + c, of f16. Lane 4 g + t holds results (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ __forceinline__ float4 multiply(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float4& c) {
  float4 d;
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d.x), "=f"(d.y), "=f"(d.z), "=f"(d.w)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c.x), "f"(c.y), "f"(c.z), "f"(c.w));
  return d;
}

}  // namespace pilotfish::cuda
