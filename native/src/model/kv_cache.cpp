#include "model/kv_cache.h"

#include <array>
#include <cassert>
#include <cstring>
#include <string>

#include "base/cache_tensor.h"

namespace pilotfish {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr int kFillByte = 0x11;  // 6.4e-4 as f16, 1.1e-28 as f32, -111 times 6.4e-4 as int8

size_t rounded(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

KvCache::KvCache(Session& session, const ModelEntry& model, int32_t num_blocks, int32_t block_size)
    : block_size_(block_size),
      num_heads_(model.num_kv_heads),
      scale_bytes_(has_scales(model.cache_type) ? 2 : 0),
      row_bytes_(cache_row_bytes(model.cache_type, model.head_dim) - scale_bytes_),
      block_bytes_((row_bytes_ + scale_bytes_) * num_heads_ * block_size),
      pool_bytes_(rounded(block_bytes_ * num_blocks, session.device() ? row_bytes_ * block_size : kPageBytes)),
      device_(session.device()) {
  const size_t num_bytes = pool_bytes_ * 2 * model.num_layers;
  if (device_) {
    pools_ = device_memory_.emplace(device_, num_bytes).data();
    device_->fill(pools_, 0, pool_bytes_, pool_bytes_, 2 * size_t(model.num_layers));
  } else {
    pools_ = pages_.emplace(num_bytes, Pages::Size::kSmall).data();
  }
  const std::array<int64_t, 4> shape{num_blocks, block_size, model.num_kv_heads,
                                     cache_row_width(model.cache_type, model.head_dim)};
  const std::array<int64_t, 4> port{GraphPorts::kOpen, GraphPorts::kOpen, shape[2], shape[3]};
  const ONNXTensorElementDataType type = element_type(model.cache_type);
  session.ports().forbid(PortKind::kInput, "key_cache." + std::to_string(model.num_layers));
  for (int32_t pool = 0; pool < 2 * model.num_layers; ++pool) {
    const std::string name = (pool % 2 == 0 ? "key_cache." : "value_cache.") + std::to_string(pool / 2);
    session.ports().require(PortKind::kInput, name, type, port);
    tensors_.push_back(session.tensor(pools_ + pool * pool_bytes_, block_bytes_ * num_blocks, shape, type));
    const Ort& ort = session.ort();
    ort.check(ort_abi::BindInput(ort.api(), session.binding(), name.c_str(), tensors_.back().get()));
  }
}

void KvCache::compact(std::span<const int32_t> block_table, int32_t first_slot, std::span<const int32_t> rows) {
  for (int32_t i = 0; i < static_cast<int32_t>(rows.size()); ++i) {
    assert(rows[i] >= i);
    if (rows[i] != i) copy_slot(block_table, first_slot + rows[i], first_slot + i);
  }
}

void KvCache::copy_slot(std::span<const int32_t> block_table, int32_t from, int32_t to) {
  copy_rows(block_table, from, to, 0, row_bytes_);
  if (scale_bytes_ > 0) copy_rows(block_table, from, to, size_t(block_size_) * num_heads_ * row_bytes_, scale_bytes_);
}

// Rows of `width` bytes of a slot's heads, which begin at `first` in each block. In host memory a slot's heads follow
// each other, on a device a head's slots.
void KvCache::copy_rows(std::span<const int32_t> block_table, int32_t from, int32_t to, size_t first, size_t width) {
  const auto place = [&](int32_t index, size_t slot_bytes) {
    return block_table[index / block_size_] * block_bytes_ + first + index % block_size_ * slot_bytes;
  };
  if (device_) {
    return device_->copy_strided(pools_ + place(to, width), pools_ + place(from, width), block_size_ * width, width,
                                 num_heads_, pool_bytes_, tensors_.size());
  }
  copy_bytes(place(from, num_heads_ * width), place(to, num_heads_ * width), num_heads_ * width);
}

void KvCache::copy_bytes(size_t source, size_t target, size_t num_bytes) {
  if (device_) return device_->copy(pools_ + target, pools_ + source, pool_bytes_, num_bytes, tensors_.size());
  for (size_t pool = 0; pool < tensors_.size(); ++pool) {
    std::memcpy(pools_ + pool * pool_bytes_ + target, pools_ + pool * pool_bytes_ + source, num_bytes);
  }
}

void KvCache::fill(int32_t block_id) {
  std::byte* const block = pools_ + block_id * block_bytes_;
  if (device_) return device_->fill(block, kFillByte, pool_bytes_, block_bytes_, tensors_.size());
  for (size_t pool = 0; pool < tensors_.size(); ++pool)
    std::memset(block + pool * pool_bytes_, kFillByte, block_bytes_);
}

void KvCache::copy(int32_t from_block, int32_t to_block) {
  copy_bytes(from_block * block_bytes_, to_block * block_bytes_, block_bytes_);
}

}  // namespace pilotfish
