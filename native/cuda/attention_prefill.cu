// Attention of many rows: a thread block walks the keys of 64 queries, 16 a warp, a split of 128 at a time. The next
// keys load while values are weighed, the next values while keys are scored. Sums are those of attention_split.cu, so
// that a row has the same bits.
#include "attention_prefill_warp.cuh"

namespace pilotfish::cuda {
namespace {

template <CacheType kType, int kDim>
__global__ void __launch_bounds__(kAttentionThreads, kBlocksOfSm<kDim>)
    prefill_attention_kernel(const __grid_constant__ PagedAttention a, const __grid_constant__ Tiling tiling) {
  extern __shared__ __align__(128) uint8_t shared[];
  let_dependents_start();
  wait_for_predecessors();
  // The last tiles have the most keys: they go first.
  const Tile tile(a, tiling, __ldcg(a.context_lens), gridDim.x - 1 - blockIdx.x, blockIdx.y);
  const KeyRange seen = tile.all_keys(a, 0, kBlockQueries);
  const int first = seen.first / kSplitKeys, last = seen.last / kSplitKeys;
  PrefillWarp<kType, kDim> warp(a, tile, seen, shared);
  warp.find(first);
  warp.load_keys();
  warp.load_values();
  for (int split = first; split <= last; ++split) {
    warp.store_scales();
    warp.find(split + 1);
    warp.wait();  // for keys
    if (split == first) warp.begin();
    warp.score(split);
    __syncthreads();  // nobody is at the keys any more
    warp.load_keys();
    warp.soften_split(split);
    warp.wait();  // for values
    warp.weigh_values(split);
    __syncthreads();  // nobody is at the values any more
    warp.load_values();
  }
  warp.write();
}

}  // namespace

cudaError_t launch_prefill_attention(const PagedAttention& attention, cudaStream_t stream) {
  const Tiling tiling = Tiling::of(attention, kBlockQueries, KeyPart::kAll);
  const dim3 grid(tiling.num_tiles, attention.shape.num_kv_heads);
  return for_cache(attention, [&]<CacheType kType, int kDim>() {
    return launch_early(prefill_attention_kernel<kType, kDim>, grid, kAttentionThreads,
                        PrefillLayout<kType, kDim>::kBytes, stream, attention, tiling);
  });
}

}  // namespace pilotfish::cuda
