#include "model_context.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "checked.h"

namespace pilotfish::cuda {

ModelContext::~ModelContext() {
  for (const auto& [value, request] : requests_) cudaFree(request.scaled_weight);
}

void ModelContext::reserve_halves(int num_columns) {
  halves_.reserve(sizeof(uint16_t) * pass_.max_rows * num_columns, stream_);
}

void ModelContext::reserve_linear(const LowbitPlan& plan) {
  partials_.linear.reserve(lowbit_partial_bytes(plan, std::min(pass_.max_rows, kMaxLinearRows)), stream_);
}

void ModelContext::reserve_prefill(const LowbitShape& shape) {
  if (pass_.max_rows <= kMaxLinearRows) return;
  prefill_.reserve(prefill_scratch_bytes(shape, std::min(pass_.max_rows, kMaxPrefillRows)), stream_);
}

void ModelContext::reserve_attention(const AttentionShape& shape) {
  queries_.reserve(sizeof(uint16_t) * pass_.max_rows * shape.num_heads * shape.head_dim, stream_);
  partials_.attention.reserve(attention_partial_bytes(shape, pass_.max_rows, pass_.max_blocks, pass_.block_size),
                              stream_);
}

void ModelContext::want_copy(const std::string& value, int num_columns, const float* norm_weight) {
  if (norm_weight && normed_columns_ != 0 && normed_columns_ != num_columns) return;
  if (norm_weight) normed_columns_ = num_columns;
  for (Slot& slot : slots_) {
    const int num_rows = std::max(pass_.max_rows, kInputCopies * kMostCopiedRows);
    slot.halves.reserve(sizeof(uint16_t) * num_rows * num_columns, stream_);
    slot.squares.reserve(sizeof(float) * pass_.max_rows * num_square_parts(num_columns), stream_);
  }
  const auto [entry, is_new] = requests_.try_emplace(value, Request{norm_weight, nullptr, 1, num_columns});
  if (!is_new || !norm_weight) return;
  std::vector<float> weight(num_columns);
  const size_t num_bytes = sizeof(float) * num_columns;
  PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(weight.data(), norm_weight, num_bytes, cudaMemcpyDeviceToHost, stream_));
  PILOTFISH_CUDA_CHECK(cudaStreamSynchronize(stream_));
  float most = 0;
  for (const float factor : weight) most = std::max(most, std::fabs(factor));
  const float scale = most > 0 && std::isfinite(most) ? std::exp2(-std::floor(std::log2(most))) : 1.0f;
  for (float& factor : weight) factor *= scale;
  Request& request = entry->second;
  void* memory = nullptr;
  PILOTFISH_CUDA_CHECK(cudaMalloc(&memory, num_bytes));
  request.scaled_weight = static_cast<float*>(memory);
  PILOTFISH_CUDA_CHECK(cudaMemcpy(request.scaled_weight, weight.data(), num_bytes, cudaMemcpyHostToDevice));
  request.unscale = 1 / scale;
}

NextInput ModelContext::begin_copy(const std::string& value, Can can, const Size& size) {
  // A copy of an earlier pass must not be found in place of this one: where a pass makes only one, both slots would
  // have its name, and where this value gets none, the last one's would.
  for (Slot& slot : slots_) {
    if (slot.value == value) slot.value.clear();
  }
  const auto request = requests_.find(value);
  if (request == requests_.end() || (request->second.norm_weight && can == Can::kCopy)) return {};
  if (size.num_rows > pass_.max_rows || size.num_columns != request->second.num_columns) return {};
  last_slot_ = 1 - last_slot_;
  Slot& slot = slots_[last_slot_];
  slot.value = value;
  const float* const weight = request->second.scaled_weight;
  slot.copy_stride = weight && can == Can::kCopies ? kMostCopiedRows * normed_columns_ : 0;
  return {slot.halves.data(), weight, weight ? static_cast<float*>(slot.squares.data()) : nullptr, slot.copy_stride};
}

ModelContext::Copy ModelContext::copy_of(const std::string& value, const float* norm_weight, float epsilon) const {
  const auto request = requests_.find(value);
  if (request == requests_.end() || request->second.norm_weight != norm_weight) return {};
  for (const Slot& slot : slots_) {
    if (slot.value != value) continue;
    if (!norm_weight) return {slot.halves.data(), {}};
    return {slot.halves.data(),
            {static_cast<const float*>(slot.squares.data()), epsilon, request->second.unscale},
            slot.copy_stride};
  }
  return {};
}

}  // namespace pilotfish::cuda
