#include "weight_store.h"

#include <algorithm>

#include "checked.h"

namespace pilotfish::cuda {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

WeightStore::WeightStore(const CudaWeightRoom& room, const WeightStore* lender, cudaStream_t stream)
    : planned_bytes_(room.resident_bytes), lender_(lender), stream_(stream) {
  if (!room.streamed.empty()) streamed_ = std::make_unique<StreamedWeights>(room, stream);
}

WeightStore::~WeightStore() {
  for (void* const memory : memory_) cudaFree(memory);
}

void WeightStore::end_load() { staging_.clear(stream_); }

const void* WeightStore::find(const void* packed) const {
  const auto found = weights_.find(packed);
  if (found != weights_.end()) return found->second;
  return lender_ ? lender_->find(packed) : nullptr;
}

void* WeightStore::take(size_t num_bytes) {
  num_bytes = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (num_bytes > num_left_) {
    const size_t planned = memory_.empty() ? static_cast<size_t>(planned_bytes_) : 0;
    const size_t num_taken = std::max(num_bytes, planned);
    void* memory = nullptr;
    PILOTFISH_CUDA_CHECK(cudaMalloc(&memory, num_taken));
    memory_.push_back(memory);
    next_ = static_cast<std::byte*>(memory);
    num_left_ = num_taken;
  }
  std::byte* const weight = next_;
  next_ += num_bytes;
  num_left_ -= num_bytes;
  return weight;
}

const void* WeightStore::repacked(const LowbitShape& shape, const void* packed) {
  if (const void* const found = find(packed)) return found;
  if (streamed_ && streamed_->has(packed)) {
    fail(PF_UNSUPPORTED,
         "a weight of a layer is an embedding too, which does not stream to a GPU; a larger memory budget is needed");
  }
  const size_t num_packed = packed_lowbit_bytes(shape), num_repacked = lowbit_weight_bytes(shape);
  staging_.reserve(num_packed, stream_);
  void* const weight = take(num_repacked);
  num_bytes_ += num_repacked;
  PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(staging_.data(), packed, num_packed, cudaMemcpyHostToDevice, stream_));
  PILOTFISH_CUDA_CHECK(repack_lowbit(shape, staging_.data(), weight, stream_));
  weights_.emplace(packed, weight);
  return weight;
}

WeightStore::ForLinear WeightStore::for_linear(const LowbitShape& shape, const void* packed) {
  ForLinear weight;
  if (!streamed_ || !streamed_->has(packed)) {
    weight.resident_ = repacked(shape, packed);
    return weight;
  }
  const size_t num_packed = packed_lowbit_bytes(shape);
  staging_.reserve(num_packed, stream_);
  PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(staging_.data(), packed, num_packed, cudaMemcpyHostToDevice, stream_));
  weight.streamed_ = streamed_.get();
  weight.reader_ = streamed_->add(shape, packed, staging_.data());
  num_bytes_ += lowbit_weight_bytes(shape);
  return weight;
}

}  // namespace pilotfish::cuda
