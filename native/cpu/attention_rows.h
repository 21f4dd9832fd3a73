// A row's query, key and value on their way in: per-head RMSNorm, rotary embedding, scale, cache write. Written with
// simd.h and with scalar code that a compiler may vectorise but not reorder.
#pragma once

#include "attention_kernels.h"
#include "cache_elements.h"
#include "rms_norm.h"
#include "simd.h"

namespace pilotfish::PILOTFISH_SIMD {

inline void normalise_head(const float* head, const float* norm_weight, int64_t head_dim, float epsilon, float* out) {
  if (norm_weight == nullptr) {
    for (int64_t d = 0; d < head_dim; ++d) out[d] = head[d];
    return;
  }
  const float inverse = inverse_rms(head, head_dim, epsilon);
  for (int64_t d = 0; d < head_dim; ++d) out[d] = head[d] * inverse * norm_weight[d];
}

inline void rotate(float& first, float& second, float cos, float sin) {
  const float rotated = first * cos - second * sin;
  second = second * cos + first * sin;
  first = rotated;
}

// cos, sin: the position's [rotary_dim / 2]. Columns from rotary_dim on stay as they are.
inline void rotate_head(const AttentionShape& shape, const float* cos, const float* sin, float* head) {
  const int64_t half = shape.rotary_dim / 2;
  if (shape.rotary_style == RotaryStyle::kHalves) {
    for (int64_t i = 0; i < half; ++i) rotate(head[i], head[half + i], cos[i], sin[i]);
  } else {
    for (int64_t i = 0; i < half; ++i) rotate(head[2 * i], head[2 * i + 1], cos[i], sin[i]);
  }
}

// Writes a head to a row of keys or values.
inline void write_cache(const KvPool& pool, void* cache, const CacheRow& row, const float* head, int64_t head_dim) {
  for_cache(pool.type, [&]<CacheType kType>() {
    using Element = CacheElement<kType>;
    auto* const elements = static_cast<typename Element::Stored*>(cache);
    Element::write(head, head_dim, elements + row.at, elements + row.scale_at);
  });
}

inline void prepare_row(const AttentionShape& shape, const KvPool& pool, const AttentionRows& rows, int64_t row,
                        int64_t slot, float* queries) {
  const int64_t head_dim = shape.head_dim, half = shape.rotary_dim / 2;
  const float* const cos = rows.cos + rows.position_ids[row] * half;
  const float* const sin = rows.sin + rows.position_ids[row] * half;
  const float* head = rows.qkv + row * shape.num_given() * head_dim;
  for (int64_t h = 0; h < shape.num_heads; ++h, head += head_dim) {
    float* const query = queries + h * head_dim;
    normalise_head(head, rows.q_norm, head_dim, shape.norm_epsilon, query);
    rotate_head(shape, cos, sin, query);
    for (int64_t d = 0; d < head_dim; ++d) query[d] *= shape.scale;
  }
  if (shape.kv_source == KvSource::kShared) return;
  for (int64_t h = 0; h < shape.num_kv_heads; ++h, head += head_dim) {
    alignas(64) float key[kMaxHeadDim], value[kMaxHeadDim];
    const CacheRow at = cache_row(shape, pool, slot / pool.block_size, slot % pool.block_size, h);
    normalise_head(head, rows.k_norm, head_dim, shape.norm_epsilon, key);
    rotate_head(shape, cos, sin, key);
    write_cache(pool, pool.keys, at, key, head_dim);
    const float* const given = head + shape.num_kv_heads * head_dim;
    if (rows.v_norm != nullptr) normalise_head(given, rows.v_norm, head_dim, shape.norm_epsilon, value);
    write_cache(pool, pool.values, at, rows.v_norm == nullptr ? given : value, head_dim);
  }
}

}  // namespace pilotfish::PILOTFISH_SIMD
