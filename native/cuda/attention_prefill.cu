// Attention of many rows: a thread block walks the keys of 64 queries, 16 a warp, with the next chunk on its way while
// one is used. Splits of 128 keys are added as in attention_split.cu, so that a row has the same bits.
#include "attention_tile.cuh"

namespace pilotfish::cuda {
namespace {

constexpr int kBlockQueries = kAttentionWarps * kTileQueries;
constexpr int kWarpKeys = kChunkKeys / kAttentionWarps;  // that a warp loads

/// Shared memory: queries, two stages of keys and values, then each thread's totals over splits.
template <CacheType kType, int kDim>
struct Layout {
  static constexpr int kChunkBytes = kChunkKeys * kCacheRowBytes<kType, kDim>;
  static constexpr int kStages = kBlockQueries * kQueryBytes<kDim>;
  static constexpr int kTotals = kStages + 2 * 2 * kChunkBytes;
  static constexpr int kBytes = kTotals + kDim / 8 * kAttentionThreads * 16;

  __host__ __device__ static constexpr int keys(int stage) { return kStages + stage * 2 * kChunkBytes; }
  __host__ __device__ static constexpr int values(int stage) { return keys(stage) + kChunkBytes; }
};

/// Results over all splits so far, of a thread's part of its warp's queries.
template <CacheType kType, int kDim>
class Totals {
 public:
  __device__ explicit Totals(uint8_t* shared)
      : values_(reinterpret_cast<float4*>(shared + Layout<kType, kDim>::kTotals) + threadIdx.x) {
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) values_[i * kAttentionThreads] = float4{};
  }

  __device__ void add(Running<kDim>& running) {
    const Join factors[2] = {join(softmax_[0], running.softmax[0]), join(softmax_[1], running.softmax[1])};
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      float4& total = values_[i * kAttentionThreads];
      const float4& part = running.values[i];
      total = make_float4(joined(factors[0], total.x, part.x), joined(factors[0], total.y, part.y),
                          joined(factors[1], total.z, part.z), joined(factors[1], total.w, part.w));
    }
    running.clear();
  }

  __device__ void write(const PagedAttention& a, const Tiling& tiling, const Tile& tile, int first_query) const {
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + lane / 4 + half * 8;
      if (!tile.has(tiling, query)) continue;
      const size_t index = tile.index(a, tiling, query);
      const float inverse = kValueUnit<kType> / softmax_[half].sum;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        const float4& total = values_[i * kAttentionThreads];
        const int columns[2] = {kept_column<kType, kDim>(i, 0), kept_column<kType, kDim>(i, 1)};
        if (columns[0] < a.shape.head_dim)
          write_result(a, index, columns[0], (half == 0 ? total.x : total.z) * inverse);
        if (columns[1] < a.shape.head_dim)
          write_result(a, index, columns[1], (half == 0 ? total.y : total.w) * inverse);
      }
    }
  }

 private:
  Softmax softmax_[2] = {{-INFINITY, 0.0f}, {-INFINITY, 0.0f}};
  float4* values_;
};

template <CacheType kType, int kDim>
__device__ LaneScales load_stage(const PagedAttention& a, const Tile& tile, const KeyRange& seen, int chunk, int stage,
                                 uint32_t at) {
  const int first = threadIdx.x / kWarpSize * kWarpKeys;
  const int cell = lane_cell(a, tile, seen, chunk * kChunkKeys);
  const int offset = cell < 0 ? cell : row_offset<kType>(a, cell, blockIdx.y);
  load_rows<kType, kDim, kWarpKeys>(a, a.key_cache, offset, first, at + Layout<kType, kDim>::keys(stage));
  load_rows<kType, kDim, kWarpKeys>(a, a.value_cache, offset, first, at + Layout<kType, kDim>::values(stage));
  if constexpr (kHasScales<kType>) return LaneScales(a, cell, blockIdx.y);
  return LaneScales();
}

template <CacheType kType, int kDim>
__global__ void __launch_bounds__(kAttentionThreads)
    prefill_attention_kernel(const __grid_constant__ PagedAttention a, const __grid_constant__ Tiling tiling) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ float scales[2][2][kChunkKeys];  // of a stage's keys and values
  let_dependents_start();
  wait_for_predecessors();
  // The last tiles have the most keys: they go first.
  const Tile tile(a, tiling, gridDim.x - 1 - blockIdx.x, blockIdx.y);
  if (tile.num_rows == 0) return;
  const uint32_t at = shared_address(shared);
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize, first_query = warp * kTileQueries;
  const KeyRange seen = tile.all_keys(a, tiling, 0, kBlockQueries);
  const KeyRange mine = tile.all_keys(a, tiling, first_query, kTileQueries);
  const KeyRange rows[2] = {tile.keys(a, tiling, first_query + lane / 4),
                            tile.keys(a, tiling, first_query + lane / 4 + 8)};
  const uint32_t queries = at + first_query * kQueryBytes<kDim>;
  load_queries<kDim, kTileQueries>(a, tiling, tile, first_query, queries);
  const int first_chunk = seen.first / kChunkKeys, last_chunk = seen.last / kChunkKeys;
  LaneScales upcoming = load_stage<kType, kDim>(a, tile, seen, first_chunk, 0, at);
  commit_copies();
  // Every warp has all scales of a chunk: one writes them.
  const auto store_scales = [&](int stage) {
    if (kHasScales<kType> && warp == 0) upcoming.store<kType>(scales[stage][0], scales[stage][1], lane);
  };
  store_scales(0);

  Totals<kType, kDim> totals(shared);
  Running<kDim> running;
  running.clear();
  for (int chunk = first_chunk; chunk <= last_chunk; ++chunk) {
    const int stage = (chunk - first_chunk) % 2;
    if (chunk < last_chunk) upcoming = load_stage<kType, kDim>(a, tile, seen, chunk + 1, 1 - stage, at);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();
    const int first_key = chunk * kChunkKeys;
    if (first_key <= mine.last && first_key + kChunkKeys > mine.first) {
      const ChunkPlace place = {at + Layout<kType, kDim>::keys(stage), at + Layout<kType, kDim>::values(stage),
                                scales[stage][0], scales[stage][1]};
      attend_chunk<kType, Order::kLater, kDim>(queries, place, first_key, rows, {a.shape.scale, a.shape.softcap}, true,
                                               running, [] {});
    }
    if (chunk % kSplitChunks == kSplitChunks - 1 || chunk == last_chunk) totals.add(running);
    store_scales(1 - stage);
    __syncthreads();
  }
  totals.write(a, tiling, tile, first_query);
}

}  // namespace

cudaError_t launch_prefill_attention(const PagedAttention& attention, cudaStream_t stream) {
  const Tiling tiling = Tiling::of(attention, kBlockQueries, KeyPart::kAll);
  const dim3 grid(tiling.num_tiles, attention.shape.num_kv_heads);
  return for_cache(attention, [&]<CacheType kType, int kDim>() {
    return launch_early(prefill_attention_kernel<kType, kDim>, grid, kAttentionThreads, Layout<kType, kDim>::kBytes,
                        stream, attention, tiling);
  });
}

}  // namespace pilotfish::cuda
