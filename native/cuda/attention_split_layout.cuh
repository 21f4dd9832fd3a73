// What a block of attention of few rows has in shared memory.
#pragma once

#include "attention_fresh.cuh"
#include "attention_partials.cuh"

namespace pilotfish::cuda {

/// Shared memory: the tile's queries, whose room the weights take once they are in registers; the keys of a split,
/// which make room for the last one's result, [16 queries][kDim] f32, and what adds the others to it; its values;
/// maxima and sums of the chunks; scales; what is made here.
template <CacheType kType, int kDim>
struct SplitLayout {
  static constexpr int kWeightBytes = kSplitKeys * 2 + 16;  // of a query
  static constexpr int kKeys = kTileQueries * (kQueryBytes<kDim> > kWeightBytes ? kQueryBytes<kDim> : kWeightBytes);
  static constexpr int kRowBytes = kCacheRowBytes<kType, kDim>;
  static constexpr int kValues = kKeys + kSplitKeys * kRowBytes;
  static constexpr int kMaxima = kValues + kSplitKeys * kRowBytes;             // [chunk][query]
  static constexpr int kSums = kMaxima + kSplitChunks * kTileQueries * 4;      // [chunk][query][lane of four]
  static constexpr int kScales = kSums + kSplitChunks * kTileQueries * 4 * 4;  // [key], [value]
  static constexpr int kHeads = kScales + (kHasScales<kType> ? 2 * kSplitKeys * 4 : 0);
  static constexpr int kBytes =
      kHeads + FreshHeads<kType, kDim, SplitLayout>::kMost * static_cast<int>(sizeof(FreshHead));
  static_assert(kTileQueries * kDim * 4 + kAttentionWarps * sizeof(typename QueryTotal<kDim>::Factors) <=
                    kSplitKeys * kRowBytes,
                "a result, and what adds the others, fits where the keys were");
  static_assert(kAttentionWarps == kSplitChunks, "a chunk a warp");

  __device__ static float* scales(uint8_t* shared, bool of_values) {
    return reinterpret_cast<float*>(shared + kScales) + (of_values ? kSplitKeys : 0);
  }
};

}  // namespace pilotfish::cuda
