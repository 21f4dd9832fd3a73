#include "kv_cache.h"

#include <array>
#include <cstring>
#include <string>

namespace pilotfish {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr int kFillByte = 0x11;  // 6.4e-4 as f16, 1.1e-28 as f32

size_t element_bytes(const ModelEntry& model) { return model.cache_type == CacheType::kF16 ? 2 : 4; }

}  // namespace

KvCache::KvCache(const Ort& ort, OrtIoBinding* binding, const ModelEntry& model, int32_t num_blocks, int32_t block_size)
    : block_size_(block_size),
      block_bytes_(element_bytes(model) * block_size * model.num_kv_heads * model.head_dim),
      pool_bytes_((block_bytes_ * num_blocks + kPageBytes - 1) / kPageBytes * kPageBytes),
      pages_(pool_bytes_ * 2 * model.num_layers, Pages::Size::kSmall) {
  const std::array<int64_t, 4> shape{num_blocks, block_size, model.num_kv_heads, model.head_dim};
  const auto type =
      model.cache_type == CacheType::kF16 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  for (int32_t pool = 0; pool < 2 * model.num_layers; ++pool) {
    const std::string name = (pool % 2 == 0 ? "key_cache." : "value_cache.") + std::to_string(pool / 2);
    tensors_.push_back(ort.tensor(pages_.data() + pool * pool_bytes_, block_bytes_ * num_blocks, shape, type));
    ort.check(ort_abi::BindInput(ort.api(), binding, name.c_str(), tensors_.back().get()));
  }
}

std::byte* KvCache::slot(std::span<const int32_t> block_table, int32_t index, size_t pool) noexcept {
  const size_t block = block_table[index / block_size_] * block_bytes_;
  return pages_.data() + pool * pool_bytes_ + block + index % block_size_ * (block_bytes_ / block_size_);
}

void KvCache::copy_slot(std::span<const int32_t> block_table, int32_t from, int32_t to) noexcept {
  for (size_t pool = 0; pool < tensors_.size(); ++pool) {
    std::memcpy(slot(block_table, to, pool), slot(block_table, from, pool), block_bytes_ / block_size_);
  }
}

void KvCache::fill(int32_t block_id) noexcept {
  for (size_t pool = 0; pool < tensors_.size(); ++pool) {
    std::memset(pages_.data() + pool * pool_bytes_ + block_id * block_bytes_, kFillByte, block_bytes_);
  }
}

void KvCache::copy(int32_t from_block, int32_t to_block) noexcept {
  for (size_t pool = 0; pool < tensors_.size(); ++pool) {
    std::byte* pages = pages_.data() + pool * pool_bytes_;
    std::memcpy(pages + to_block * block_bytes_, pages + from_block * block_bytes_, block_bytes_);
  }
}

}  // namespace pilotfish
