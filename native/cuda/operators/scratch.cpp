#include "scratch.h"

#include "checked.h"

namespace pilotfish::cuda {

Scratch::~Scratch() { cudaFree(data_); }

void Scratch::reserve(size_t num_bytes, cudaStream_t stream) {
  if (num_bytes <= num_bytes_) return;
  clear(stream);
  PILOTFISH_CUDA_CHECK(cudaMalloc(&data_, num_bytes));
  num_bytes_ = num_bytes;
  PILOTFISH_CUDA_CHECK(cudaMemsetAsync(data_, byte_, num_bytes, stream));
}

void Scratch::clear(cudaStream_t stream) {
  PILOTFISH_CUDA_CHECK(cudaStreamSynchronize(stream));
  PILOTFISH_CUDA_CHECK(cudaFree(data_));
  data_ = nullptr;
  num_bytes_ = 0;
}

}  // namespace pilotfish::cuda
