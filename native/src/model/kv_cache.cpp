#include "model/kv_cache.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <string>

#include "base/cache_tensor.h"

namespace pilotfish {
namespace {

constexpr int kFillByte = 0x11;  // 6.4e-4 as f16, 1.1e-28 as f32, -111 times 6.4e-4 as int8

}  // namespace

KvCache::KvCache(Session& session, const ModelEntry& model, int32_t num_blocks, int32_t block_size) {
  const auto num_caches = static_cast<int32_t>(model.caches.size());
  const ONNXTensorElementDataType type = element_type(model.cache_type);
  session.ports().forbid(PortKind::kInput, "key_cache." + std::to_string(num_caches));
  std::vector<CacheShape> shapes;
  for (const CacheShape& shape : model.caches) {
    if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
  }
  pools_.reserve(shapes.size());
  for (const CacheShape& shape : shapes) {
    const auto count = static_cast<int32_t>(std::ranges::count(model.caches, shape));
    CachePools& pools = pools_.emplace_back(session.device(), shape, model.cache_type, count, num_blocks, block_size);
    const std::array<int64_t, 4> dims{num_blocks, block_size, shape.num_kv_heads,
                                      cache_row_width(model.cache_type, shape.head_dim)};
    const std::array<int64_t, 4> port{GraphPorts::kOpen, GraphPorts::kOpen, dims[2], dims[3]};
    int32_t pool = 0;
    for (int32_t cache = 0; cache < num_caches; ++cache) {
      if (model.caches[cache] != shape) continue;
      for (const char* const kind : {"key_cache.", "value_cache."}) {
        const std::string name = kind + std::to_string(cache);
        session.ports().require(PortKind::kInput, name, type, port);
        tensors_.push_back(session.tensor(pools.pool(pool++), pools.used_bytes(), dims, type));
        const Ort& ort = session.ort();
        ort.check(ort_abi::BindInput(ort.api(), session.binding(), name.c_str(), tensors_.back().get()));
      }
    }
  }
}

void KvCache::compact(std::span<const int32_t> block_table, int32_t first_slot, std::span<const int32_t> rows) {
  for (int32_t i = 0; i < static_cast<int32_t>(rows.size()); ++i) {
    assert(rows[i] >= i);
    if (rows[i] == i) continue;
    for (CachePools& pools : pools_) pools.copy_slot(block_table, first_slot + rows[i], first_slot + i);
  }
}

void KvCache::fill(int32_t block_id) {
  for (CachePools& pools : pools_) pools.fill(block_id, kFillByte);
}

void KvCache::copy(int32_t from_block, int32_t to_block) {
  for (CachePools& pools : pools_) pools.copy(from_block, to_block);
}

uint64_t KvCache::block_bytes() const noexcept {
  uint64_t num_bytes = 0;
  for (const CachePools& pools : pools_) num_bytes += pools.block_bytes();
  return num_bytes;
}

void KvCache::read(std::span<const int32_t> blocks, const std::function<void(std::span<const std::byte>)>& take) const {
  for (const CachePools& pools : pools_) pools.read(blocks, take);
}

bool KvCache::write(std::span<const int32_t> blocks, const std::function<void(std::span<std::byte>)>& give) {
  bool all_are_finite = true;
  for (CachePools& pools : pools_) all_are_finite = pools.write(blocks, give) && all_are_finite;
  return all_are_finite;
}

void KvCache::make_resident(std::span<const int32_t> blocks) const noexcept {
  for (const CachePools& pools : pools_) pools.make_resident(blocks);
}

}  // namespace pilotfish
