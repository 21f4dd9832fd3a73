#include "model_context.h"

#include <algorithm>

#include "checked.h"

namespace pilotfish::cuda {

Scratch::~Scratch() { cudaFree(data_); }

void Scratch::reserve(size_t num_bytes, cudaStream_t stream) {
  if (num_bytes <= num_bytes_) return;
  PILOTFISH_CUDA_CHECK(cudaStreamSynchronize(stream));
  PILOTFISH_CUDA_CHECK(cudaFree(data_));
  data_ = nullptr;
  num_bytes_ = 0;
  PILOTFISH_CUDA_CHECK(cudaMalloc(&data_, num_bytes));
  num_bytes_ = num_bytes;
  PILOTFISH_CUDA_CHECK(cudaMemsetAsync(data_, byte_, num_bytes, stream));
}

ModelContext::ModelContext(const DeviceLimits& limits, const CudaPassLimits& pass, cudaStream_t stream)
    : limits_(limits), pass_(pass), stream_(stream) {}

ModelContext::~ModelContext() {
  for (const auto& [packed, repacked] : weights_) cudaFree(repacked);
}

const void* ModelContext::weights(const LowbitShape& shape, const void* packed) {
  void*& repacked = weights_[packed];
  if (repacked) return repacked;
  const size_t num_packed = packed_lowbit_bytes(shape), num_repacked = lowbit_weight_bytes(shape);
  staging_.reserve(num_packed, stream_);
  void* memory = nullptr;
  PILOTFISH_CUDA_CHECK(cudaMalloc(&memory, num_repacked));
  repacked = memory;
  weight_bytes_ += num_repacked;
  PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(staging_.data(), packed, num_packed, cudaMemcpyHostToDevice, stream_));
  PILOTFISH_CUDA_CHECK(repack_lowbit(shape, staging_.data(), repacked, stream_));
  return repacked;
}

void ModelContext::reserve_halves(int num_columns) {
  halves_.reserve(sizeof(uint16_t) * pass_.max_rows * num_columns, stream_);
}

void ModelContext::reserve_linear(const LowbitPlan& plan) {
  linear_partials_.reserve(lowbit_partial_bytes(plan, std::min(pass_.max_rows, kMaxLinearRows)), stream_);
}

void ModelContext::reserve_attention(const AttentionShape& shape) {
  queries_.reserve(sizeof(uint16_t) * pass_.max_rows * shape.num_heads * shape.head_dim, stream_);
  attention_partials_.reserve(attention_partial_bytes(shape, pass_.max_rows, pass_.max_blocks, pass_.block_size),
                              stream_);
  arrivals_.reserve(attention_arrival_bytes(shape, pass_.max_rows, 1), stream_);
}

void ModelContext::want_halves_of(const std::string& value, int num_columns) {
  wanted_.insert(value);
  companion_.reserve(sizeof(uint16_t) * pass_.max_rows * num_columns, stream_);
}

void* ModelContext::begin_halves_of(const std::string& value) {
  if (!wanted_.contains(value)) return nullptr;
  companion_of_ = value;
  return companion_.data();
}

const void* ModelContext::halves_of(const std::string& value) const {
  return companion_of_ == value ? companion_.data() : nullptr;
}

uint64_t ModelContext::device_bytes() const noexcept {
  uint64_t num_bytes = weight_bytes_;
  for (const Scratch* scratch :
       {&staging_, &halves_, &queries_, &attention_partials_, &arrivals_, &companion_, &linear_partials_}) {
    num_bytes += scratch->num_bytes();
  }
  return num_bytes;
}

}  // namespace pilotfish::cuda
