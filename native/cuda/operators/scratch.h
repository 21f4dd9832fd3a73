// Device memory that only grows, while a session is created. What it held is lost.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace pilotfish::cuda {

class Scratch {
 public:
  // `byte`: what fresh memory is filled with.
  explicit Scratch(int byte = 0) : byte_(byte) {}
  Scratch(Scratch&&) = delete;
  ~Scratch();

  void reserve(size_t num_bytes, cudaStream_t stream);
  void clear(cudaStream_t stream);
  void* data() const noexcept { return data_; }
  size_t num_bytes() const noexcept { return num_bytes_; }

 private:
  int byte_;
  void* data_ = nullptr;
  size_t num_bytes_ = 0;
};

}  // namespace pilotfish::cuda
