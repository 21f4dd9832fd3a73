// How caches keep their keys and values: one row of a table a type. GRAPH.md has the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pilotfish {

enum class CacheType { kF16, kF32, kInt8 };
inline constexpr std::array kCacheTypes{CacheType::kF16, CacheType::kF32, CacheType::kInt8};

struct CacheFormat {
  const char* name;  // in manifests
  int element_bytes;
  int scale_bytes;  // of a head of a slot; 0: it has no scale
  bool is_on_gpus;  // whether the CUDA kernels have it
};

constexpr CacheFormat format_of(CacheType type) {
  constexpr std::array<CacheFormat, kCacheTypes.size()> kFormats{
      {{.name = "f16", .element_bytes = 2, .scale_bytes = 0, .is_on_gpus = true},
       {.name = "f32", .element_bytes = 4, .scale_bytes = 0, .is_on_gpus = false},
       {.name = "int8", .element_bytes = 1, .scale_bytes = 2, .is_on_gpus = true}}};
  return kFormats[static_cast<size_t>(type)];
}

constexpr const char* name_of(CacheType type) { return format_of(type).name; }
constexpr int element_bytes(CacheType type) { return format_of(type).element_bytes; }
constexpr bool is_on_gpus(CacheType type) { return format_of(type).is_on_gpus; }

// A scale lies behind all elements of its block, and elements are multiples of it.
constexpr bool has_scales(CacheType type) { return format_of(type).scale_bytes > 0; }

// The largest magnitude of an element beside a scale: what the head's largest becomes.
inline constexpr float kLargestElement = 127.0f;

// Of one head of a slot.
constexpr uint64_t cache_row_bytes(CacheType type, int64_t head_dim) {
  return static_cast<uint64_t>(head_dim) * element_bytes(type) + format_of(type).scale_bytes;
}

}  // namespace pilotfish
