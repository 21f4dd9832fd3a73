// How caches keep their keys and values. GRAPH.md has the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pilotfish {

enum class CacheType { kF16, kF32, kInt8 };
inline constexpr std::array kCacheTypes{CacheType::kF16, CacheType::kF32, CacheType::kInt8};

// As manifests name it.
constexpr const char* name_of(CacheType type) {
  constexpr std::array kNames{"f16", "f32", "int8"};
  return kNames[static_cast<size_t>(type)];
}

// Elements are bytes then, and a head of a slot has a scale of two more, which lies behind all elements of its block.
constexpr bool has_scales(CacheType type) { return type == CacheType::kInt8; }

// The largest magnitude of an element beside a scale: what the head's largest becomes.
inline constexpr float kLargestElement = 127.0f;

constexpr int element_bytes(CacheType type) { return has_scales(type) ? 1 : type == CacheType::kF32 ? 4 : 2; }

// Of one head of a slot, the last axis of a cache's tensor.
constexpr int64_t cache_row_width(CacheType type, int64_t head_dim) { return head_dim + (has_scales(type) ? 2 : 0); }

constexpr uint64_t cache_row_bytes(CacheType type, int64_t head_dim) {
  return static_cast<uint64_t>(cache_row_width(type, head_dim)) * element_bytes(type);
}

}  // namespace pilotfish
