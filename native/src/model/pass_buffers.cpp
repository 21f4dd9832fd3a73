#include "model/pass_buffers.h"

namespace pilotfish {
namespace {

constexpr size_t kAlignment = 64;

constexpr size_t aligned(size_t num_bytes) { return (num_bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t input_bytes(const PassSizes& sizes) {
  constexpr size_t kInt = sizeof(int32_t);
  return 2 * aligned(kInt * sizes.max_rows) + aligned(kInt * (sizes.max_seqs + 1)) + aligned(kInt * sizes.max_seqs) +
         aligned(kInt * sizes.max_seqs * sizes.max_blocks) + aligned(kInt * sizes.max_outputs) +
         aligned(kInt * sizes.max_hidden) + aligned(sizeof(uint64_t) * sizes.max_rows);
}

}  // namespace

PassBuffers::PassBuffers(const PassSizes& sizes, std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {
  const size_t num_bytes = input_bytes(sizes);
  const size_t logit_bytes = sizeof(float) * sizes.max_outputs * sizes.num_logits;
  if (device_) {
    host_ = static_cast<std::byte*>(device_->allocate_host(num_bytes));
    inputs_.emplace(device_, num_bytes);
    device_logits_.emplace(device_, logit_bytes);
    bound_logits_ = device_logits_->data();
    logits = static_cast<float*>(device_->allocate_host(logit_bytes));
  } else {
    pageable_.resize(num_bytes);
    host_ = pageable_.data();
    pages_.emplace(logit_bytes, Pages::Size::kSmall);
    logits = reinterpret_cast<float*>(pages_->data());
    bound_logits_ = logits;
  }
  input_ids = take<int32_t>(sizes.max_rows);
  position_ids = take<int32_t>(sizes.max_rows);
  seq_starts = take<int32_t>(size_t(sizes.max_seqs) + 1);
  context_lens = take<int32_t>(sizes.max_seqs);
  block_table = take<int32_t>(size_t(sizes.max_seqs) * sizes.max_blocks);
  output_rows = take<int32_t>(sizes.max_outputs);
  hidden_rows = take<int32_t>(sizes.max_hidden);
  tree_mask = take<uint64_t>(sizes.max_rows);
}

PassBuffers::~PassBuffers() {
  if (!device_) return;
  device_->release_host(host_);
  device_->release_host(logits);
}

template <typename Element>
std::span<Element> PassBuffers::take(size_t count) noexcept {
  auto* const first = reinterpret_cast<Element*>(host_ + num_bytes_);
  std::uninitialized_fill_n(first, count, Element{});
  num_bytes_ += aligned(sizeof(Element) * count);
  return {first, count};
}

void* PassBuffers::bound(const void* host) const noexcept {
  std::byte* const base = inputs_ ? inputs_->data() : host_;
  return base + (static_cast<const std::byte*>(host) - host_);
}

void PassBuffers::upload() const {
  if (device_) device_->upload(inputs_->data(), host_, num_bytes_);
}

void PassBuffers::download(size_t first_logit_byte, size_t num_bytes) const {
  if (!device_ || num_bytes == 0) return;
  device_->download(reinterpret_cast<std::byte*>(logits) + first_logit_byte,
                    static_cast<const std::byte*>(bound_logits_) + first_logit_byte, num_bytes);
}

}  // namespace pilotfish
