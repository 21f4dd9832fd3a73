#include "memory/kv_cache.h"

#include <array>
#include <cstring>
#include <string>

namespace pilotfish {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr int kFillByte = 0x11;  // 6.4e-4 as f16, 1.1e-28 as f32

size_t element_bytes(const ModelEntry& model) { return model.cache_type == CacheType::kF16 ? 2 : 4; }

}  // namespace

KvCache::KvCache(const Ort& ort, OrtIoBinding* binding, const ModelEntry& model, int32_t num_blocks, int32_t block_size,
                 std::shared_ptr<CudaDevice> device)
    : block_size_(block_size),
      block_bytes_(element_bytes(model) * block_size * model.num_kv_heads * model.head_dim),
      pool_bytes_((block_bytes_ * num_blocks + kPageBytes - 1) / kPageBytes * kPageBytes),
      device_(std::move(device)) {
  const size_t num_bytes = pool_bytes_ * 2 * model.num_layers;
  if (device_) {
    pools_ = device_memory_.emplace(device_, num_bytes).data();
    device_->fill(pools_, 0, pool_bytes_, pool_bytes_, 2 * size_t(model.num_layers));
  } else {
    pools_ = pages_.emplace(num_bytes, Pages::Size::kSmall).data();
  }
  const std::array<int64_t, 4> shape{num_blocks, block_size, model.num_kv_heads, model.head_dim};
  const auto type =
      model.cache_type == CacheType::kF16 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  for (int32_t pool = 0; pool < 2 * model.num_layers; ++pool) {
    const std::string name = (pool % 2 == 0 ? "key_cache." : "value_cache.") + std::to_string(pool / 2);
    std::byte* const data = pools_ + pool * pool_bytes_;
    tensors_.push_back(device_ ? ort.cuda_tensor(device_->index(), data, block_bytes_ * num_blocks, shape, type)
                               : ort.tensor(data, block_bytes_ * num_blocks, shape, type));
    ort.check(ort_abi::BindInput(ort.api(), binding, name.c_str(), tensors_.back().get()));
  }
}

size_t KvCache::slot_offset(std::span<const int32_t> block_table, int32_t index) const noexcept {
  return block_table[index / block_size_] * block_bytes_ + index % block_size_ * (block_bytes_ / block_size_);
}

void KvCache::copy_slot(std::span<const int32_t> block_table, int32_t from, int32_t to) {
  const size_t source = slot_offset(block_table, from), target = slot_offset(block_table, to);
  const size_t slot_bytes = block_bytes_ / block_size_;
  if (device_) return device_->copy(pools_ + target, pools_ + source, pool_bytes_, slot_bytes, tensors_.size());
  for (size_t pool = 0; pool < tensors_.size(); ++pool) {
    std::memcpy(pools_ + pool * pool_bytes_ + target, pools_ + pool * pool_bytes_ + source, slot_bytes);
  }
}

void KvCache::fill(int32_t block_id) {
  std::byte* const block = pools_ + block_id * block_bytes_;
  if (device_) return device_->fill(block, kFillByte, pool_bytes_, block_bytes_, tensors_.size());
  for (size_t pool = 0; pool < tensors_.size(); ++pool)
    std::memset(block + pool * pool_bytes_, kFillByte, block_bytes_);
}

void KvCache::copy(int32_t from_block, int32_t to_block) {
  std::byte* const source = pools_ + from_block * block_bytes_;
  std::byte* const target = pools_ + to_block * block_bytes_;
  if (device_) return device_->copy(target, source, pool_bytes_, block_bytes_, tensors_.size());
  for (size_t pool = 0; pool < tensors_.size(); ++pool) {
    std::memcpy(target + pool * pool_bytes_, source + pool * pool_bytes_, block_bytes_);
  }
}

}  // namespace pilotfish
