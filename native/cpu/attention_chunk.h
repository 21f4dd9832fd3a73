// One chunk of 16 slots: which of them a row sees, and its keys and values as floats.
#pragma once

#include <cstring>

#include "attention_kernels.h"
#include "float16.h"
#include "simd.h"
#if defined(__AVX2__)
#include "transpose_avx2.h"
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
    const int64_t element_bytes = pool_.type == CacheType::kF32 ? 4 : pool_.type == CacheType::kF16 ? 2 : 1;
    const char* const head = static_cast<const char*>(cache_) + row.at * element_bytes;
    if (pool_.type == CacheType::kInt8) __builtin_prefetch(static_cast<const char*>(cache_) + row.scale_at);
    for (int64_t byte = 0; byte < shape_.head_dim * element_bytes; byte += 64) __builtin_prefetch(head + byte);
  }

  const AttentionShape& shape_;
  const KvPool& pool_;
  const AttentionTile& tile_;
  const void* cache_;
  int64_t slot_;
  int64_t last_slot_;
  ChunkAddresses next_;
};

inline float row_scale(const uint8_t* cache, int64_t at) {
  uint16_t scale;
  std::memcpy(&scale, cache + at, sizeof scale);
  return half_to_float(scale);
}

// load_keys() of bytes
inline void load_key_bytes(const uint8_t* keys, const ChunkAddresses& chunk, int64_t head_dim, float* out) {
  alignas(64) float scales[kChunkKeys];
  for (int64_t key = 0; key < kChunkKeys; ++key) scales[key] = row_scale(keys, chunk.scale_at[key]);
  int64_t done = 0;
#if defined(__AVX2__)
  const Floats scale = load(scales), offset = broadcast(kByteOffset);
  for (; done + kChunkKeys <= head_dim; done += kChunkKeys) {
    alignas(16) uint8_t columns[kChunkKeys][kChunkKeys];
    transpose_bytes(keys + done, chunk.at, columns);
    for (int64_t d = 0; d < kChunkKeys; ++d) {
      store(out + (done + d) * kChunkKeys, mul(sub(load_bytes(columns[d]), offset), scale));
    }
  }
#endif
  for (int64_t key = 0; key < kChunkKeys; ++key) {
    for (int64_t d = done; d < head_dim; ++d) {
      out[d * kChunkKeys + key] = static_cast<float>(keys[chunk.at[key] + d] - kByteOffset) * scales[key];
    }
  }
}

// out[head_dim][16 keys]
inline void load_keys(const KvPool& pool, const ChunkAddresses& chunk, int64_t head_dim, float* out) {
  if (pool.type == CacheType::kInt8) {
    return load_key_bytes(static_cast<const uint8_t*>(pool.keys), chunk, head_dim, out);
  }
  if (pool.type == CacheType::kF32) {
    const auto keys = static_cast<const float*>(pool.keys);
    for (int64_t key = 0; key < kChunkKeys; ++key) {
      for (int64_t d = 0; d < head_dim; ++d) out[d * kChunkKeys + key] = keys[chunk.at[key] + d];
    }
    return;
  }
  const auto keys = static_cast<const uint16_t*>(pool.keys);
  int64_t done = 0;
#if defined(__AVX2__)
  for (; done + kChunkKeys <= head_dim; done += kChunkKeys) {
    transpose_halves(keys + done, chunk.at, out + done * kChunkKeys);
  }
#endif
  for (int64_t key = 0; key < kChunkKeys; ++key) {
    for (int64_t d = done; d < head_dim; ++d) out[d * kChunkKeys + key] = half_to_float(keys[chunk.at[key] + d]);
  }
}

inline void load_value_bytes(const uint8_t* value, float scale, int64_t head_dim, float* out) {
  int64_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) {
    store(out + d, mul(sub(load_bytes(value + d), broadcast(kByteOffset)), broadcast(scale)));
  }
  for (; d < head_dim; ++d) out[d] = static_cast<float>(value[d] - kByteOffset) * scale;
}

// out[16 keys][padded head_dim], the padding zero
inline void load_values(const KvPool& pool, const ChunkAddresses& chunk, int64_t head_dim, float* out) {
  const int64_t width = padded_head_dim(head_dim);
  for (int64_t key = 0; key < kChunkKeys; ++key, out += width) {
    if (pool.type == CacheType::kF32) {
      const float* const value = static_cast<const float*>(pool.values) + chunk.at[key];
      for (int64_t d = 0; d < head_dim; ++d) out[d] = value[d];
    } else if (pool.type == CacheType::kInt8) {
      const auto* const bytes = static_cast<const uint8_t*>(pool.values);
      load_value_bytes(bytes + chunk.at[key], row_scale(bytes, chunk.scale_at[key]), head_dim, out);
    } else {
      const uint16_t* const value = static_cast<const uint16_t*>(pool.values) + chunk.at[key];
      int64_t d = 0;
      for (; d + kLanes <= head_dim; d += kLanes) store(out + d, load_halves(value + d));
      for (; d < head_dim; ++d) out[d] = half_to_float(value[d]);
    }
    for (int64_t d = head_dim; d < width; ++d) out[d] = 0.0f;
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
