#include "streamed_weights.h"

#include "checked.h"

namespace pilotfish::cuda {

StreamedWeights::StreamedWeights(const CudaWeightRoom& room, cudaStream_t stream)
    : stream_(stream), slot_bytes_(room.slot_bytes) {
  for (const void* const packed : room.streamed) hosted_.emplace(packed, Hosted{});
  try {
    PILOTFISH_CUDA_CHECK(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
    for (auto* const events : {&used_, &copied_}) {
      for (cudaEvent_t& event : *events) {
        PILOTFISH_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      }
    }
    void* memory = nullptr;
    PILOTFISH_CUDA_CHECK(cudaMalloc(&memory, WeightStream::kNumSlots * slot_bytes_ + kStreamMarkerBytes));
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i] = static_cast<std::byte*>(memory) + i * slot_bytes_;
    marker_ = slots_.back() + slot_bytes_;
  } catch (...) {
    free();
    throw;
  }
}

StreamedWeights::~StreamedWeights() { free(); }

void StreamedWeights::free() noexcept {
  if (copies_) cudaStreamSynchronize(copies_);
  for (const auto& [packed, weight] : hosted_) cudaFreeHost(weight.data);
  cudaFree(slots_[0]);
  for (const auto& events : {used_, copied_}) {
    for (const cudaEvent_t event : events) {
      if (event) cudaEventDestroy(event);
    }
  }
  if (copies_) cudaStreamDestroy(copies_);
}

size_t StreamedWeights::add(const LowbitShape& shape, const void* packed, const void* staged) {
  Hosted& weight = hosted_.at(packed);
  if (!weight.data) {
    const size_t num_bytes = lowbit_weight_bytes(shape);
    if (num_bytes > slot_bytes_) fail(PF_INTERNAL, "a weight of ", num_bytes, " bytes streams through ", slot_bytes_);
    if (cudaMallocHost(&weight.data, num_bytes) != cudaSuccess) {
      cudaGetLastError();
      weight.data = nullptr;
      fail(PF_OUT_OF_MEMORY, "the system refused ", num_bytes,
           " bytes of page-locked memory for weights that stream to the GPU; a larger memory budget streams fewer");
    }
    weight.num_bytes = num_bytes;
    PILOTFISH_CUDA_CHECK(repack_lowbit(shape, staged, slots_[0], stream_));
    PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(weight.data, slots_[0], num_bytes, cudaMemcpyDeviceToHost, stream_));
  }
  readers_.push_back(&weight);
  return order_.add_reader();
}

// A recording may begin with this: the copies' stream has not joined it yet, and may be waited for.
void StreamedWeights::load(size_t slot, size_t reader) {
  const Hosted& weight = *readers_[reader];
  PILOTFISH_CUDA_CHECK(cudaStreamSynchronize(copies_));
  PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(slots_[slot], weight.data, weight.num_bytes, cudaMemcpyHostToDevice, stream_));
}

void StreamedWeights::start(size_t slot, size_t reader) {
  const Hosted& weight = *readers_[reader];
  PILOTFISH_CUDA_CHECK(cudaEventRecord(used_[slot], stream_));
  PILOTFISH_CUDA_CHECK(cudaStreamWaitEvent(copies_, used_[slot]));
  PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(slots_[slot], weight.data, weight.num_bytes, cudaMemcpyHostToDevice, copies_));
  PILOTFISH_CUDA_CHECK(cudaEventRecord(copied_[slot], copies_));
}

// Kernels begin before the kernel ahead of them in the stream has ended, and linears read their weights that early:
// what is ahead of them must be no kernel, so that they begin after the copy.
void StreamedWeights::wait(size_t slot) {
  PILOTFISH_CUDA_CHECK(cudaStreamWaitEvent(stream_, copied_[slot]));
  PILOTFISH_CUDA_CHECK(cudaMemsetAsync(marker_, 0, kStreamMarkerBytes, stream_));
}

}  // namespace pilotfish::cuda
