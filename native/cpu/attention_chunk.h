// One chunk of 16 slots: which of them a row sees, and its keys and values as floats.
#pragma once

#include <cstring>

#include "attention_kernels.h"
#include "cache_elements.h"
#include "float16.h"
#include "simd.h"
#if defined(__AVX2__)
#include "transpose_avx2.h"
#elif defined(PILOTFISH_NEON)
#include "transpose_neon.h"
#endif

namespace pilotfish::PILOTFISH_SIMD {

// The part of a row's view that lies in one split, and how many of its keys have been passed.
struct SplitView {
  int64_t first_slot;
  int64_t last_slot;
  int64_t tree_slot;
  uint64_t tree;
  int64_t num_keys;

  // Bit i: the row sees slot + i, i < 16.
  uint32_t visible(int64_t slot) const {
    const int64_t first = first_slot - slot, last = last_slot - slot;
    const uint32_t below_last = last <= 0 ? 0 : (last >= kChunkKeys ? 0xffffu : (1u << last) - 1);
    const uint32_t below_first = first <= 0 ? 0 : (first >= kChunkKeys ? 0xffffu : (1u << first) - 1);
    const int64_t shift = slot - tree_slot;
    const uint64_t in_tree = shift >= 64 || shift <= -kChunkKeys ? 0 : (shift >= 0 ? tree >> shift : tree << -shift);
    return (below_last & ~below_first) | static_cast<uint32_t>(in_tree & 0xffff);
  }
  int64_t begin() const { return first_slot < last_slot ? first_slot : tree_slot + __builtin_ctzll(tree); }
  int64_t end() const { return tree == 0 ? last_slot : tree_slot + 64 - __builtin_clzll(tree); }
};

inline SplitView split_view(const RowView& view, int64_t split) {
  const int64_t first_key = split * kSplitKeys;
  const int64_t last_key = view.num_keys() < first_key + kSplitKeys ? view.num_keys() : first_key + kSplitKeys;
  const int64_t num_slots = view.last_slot - view.first_slot;  // keys before the tree's
  SplitView part{view.first_slot + first_key, view.first_slot + last_key, view.tree_slot, 0, last_key - first_key};
  if (part.first_slot > view.last_slot) part.first_slot = view.last_slot;
  if (part.last_slot > view.last_slot) part.last_slot = view.last_slot;
  int64_t key = num_slots;
  for (uint64_t bits = view.tree; bits != 0; bits &= bits - 1, ++key) {
    if (key >= first_key && key < last_key) part.tree |= bits & -bits;
  }
  if (part.num_keys < 0) part.num_keys = 0;
  return part;
}

// Where the heads of 16 consecutive slots lie, as in CacheRow; slots from last_slot on repeat the one before it.
struct ChunkAddresses {
  int64_t at[kChunkKeys];
  int64_t scale_at[kChunkKeys];
};

// Walks the slots of a split chunk by chunk, fetching the next chunk's heads of `cache` while the caller works on this
// one: they lie apart from each other, where no hardware prefetcher finds them.
class ChunkWalk {
 public:
  ChunkWalk(const AttentionShape& shape, const KvPool& pool, const AttentionTile& tile, const void* cache, int64_t slot,
            int64_t last_slot)
      : shape_(shape), pool_(pool), tile_(tile), cache_(cache), slot_(slot), last_slot_(last_slot) {
    if (slot_ < last_slot_) find_next();
  }

  // False when no slot is left; otherwise `current` is the chunk from `slot` on.
  bool next(ChunkAddresses* current, int64_t* slot) {
    if (slot_ >= last_slot_) return false;
    *current = next_;
    *slot = slot_;
    slot_ += kChunkKeys;
    if (slot_ < last_slot_) find_next();
    return true;
  }

 private:
  void find_next() {
    int64_t block = slot_ / pool_.block_size, offset = slot_ % pool_.block_size;
    for (int64_t key = 0; key < kChunkKeys; ++key) {
      if (slot_ + key >= last_slot_) {
        next_.at[key] = next_.at[key - 1];
        next_.scale_at[key] = next_.scale_at[key - 1];
        continue;
      }
      const CacheRow row = cache_row(shape_, pool_, tile_.block_table[block], offset, tile_.kv_head);
      next_.at[key] = row.at;
      next_.scale_at[key] = row.scale_at;
      fetch(row);
      if (++offset == pool_.block_size) {
        offset = 0;
        ++block;
      }
    }
  }

  void fetch(const CacheRow& row) const {
    const int64_t size = element_bytes(pool_.type);
    const char* const head = static_cast<const char*>(cache_) + row.at * size;
    if (has_scales(pool_.type)) __builtin_prefetch(static_cast<const char*>(cache_) + row.scale_at);
    for (int64_t byte = 0; byte < shape_.head_dim * size; byte += 64) __builtin_prefetch(head + byte);
  }

  const AttentionShape& shape_;
  const KvPool& pool_;
  const AttentionTile& tile_;
  const void* cache_;
  int64_t slot_;
  int64_t last_slot_;
  ChunkAddresses next_;
};

// 1 where the cache has no scales.
template <CacheType kType>
inline float row_scale(const void* pool, int64_t at) {
  if constexpr (!has_scales(kType)) return 1.0f;
  uint16_t scale;
  std::memcpy(&scale, static_cast<const std::byte*>(pool) + at, sizeof scale);
  return half_to_float(scale);
}

template <CacheType kType>
inline Floats scaled(Floats values, Floats scale) {
  return has_scales(kType) ? mul(values, scale) : values;
}

// out[head_dim][16 keys]
template <CacheType kType>
inline void load_keys(const void* pool, const ChunkAddresses& chunk, int64_t head_dim, float* out) {
  using Element = CacheElement<kType>;
  const auto keys = static_cast<const typename Element::Stored*>(pool);
  alignas(64) float scales[kChunkKeys];
  for (int64_t key = 0; key < kChunkKeys; ++key) scales[key] = row_scale<kType>(pool, chunk.scale_at[key]);
  int64_t done = 0;
#if defined(__AVX2__) || defined(PILOTFISH_NEON)
  if constexpr (sizeof(typename Element::Stored) < sizeof(float)) {
    for (; done + kChunkKeys <= head_dim; done += kChunkKeys) {
      transpose(keys + done, chunk.at, [&](int64_t column, const typename Element::Stored* elements) {
        store(out + (done + column) * kChunkKeys, scaled<kType>(Element::load(elements), load(scales)));
      });
    }
  }
#endif
  for (int64_t key = 0; key < kChunkKeys; ++key) {
    for (int64_t d = done; d < head_dim; ++d) {
      out[d * kChunkKeys + key] = Element::one(keys[chunk.at[key] + d]) * scales[key];
    }
  }
}

// out[16 keys][padded head_dim], the padding zero
template <CacheType kType>
inline void load_values(const void* pool, const ChunkAddresses& chunk, int64_t head_dim, float* out) {
  using Element = CacheElement<kType>;
  const int64_t width = padded_head_dim(head_dim);
  for (int64_t key = 0; key < kChunkKeys; ++key, out += width) {
    const auto* const value = static_cast<const typename Element::Stored*>(pool) + chunk.at[key];
    const float scale = row_scale<kType>(pool, chunk.scale_at[key]);
    int64_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) {
      store(out + d, scaled<kType>(Element::load(value + d), broadcast(scale)));
    }
    for (; d < head_dim; ++d) out[d] = Element::one(value[d]) * scale;
    for (; d < width; ++d) out[d] = 0.0f;
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
