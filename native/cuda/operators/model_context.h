// What the operators of one session share: repacked weights and scratch memory on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "cuda_device.h"
#include "kernels.h"

namespace pilotfish::cuda {

// Device memory that only grows, while a session is created. What it held is lost.
class Scratch {
 public:
  // `byte`: what fresh memory is filled with.
  explicit Scratch(int byte = 0) : byte_(byte) {}
  Scratch(Scratch&&) = delete;
  ~Scratch();

  void reserve(size_t num_bytes, cudaStream_t stream);
  void* data() const noexcept { return data_; }
  size_t num_bytes() const noexcept { return num_bytes_; }

 private:
  int byte_;
  void* data_ = nullptr;
  size_t num_bytes_ = 0;
};

class ModelContext {
 public:
  ModelContext(const DeviceLimits& limits, const CudaPassLimits& pass, cudaStream_t stream);
  ModelContext(ModelContext&&) = delete;
  ~ModelContext();

  const DeviceLimits& limits() const noexcept { return limits_; }
  const CudaPassLimits& pass() const noexcept { return pass_; }

  // The repacked copy of a packed weight in host memory, made when it is first asked for; an embedding that is the
  // output head too has one.
  const void* weights(const LowbitShape& shape, const void* packed);

  // Room for what an operator needs, and the memory.
  void reserve_halves(int num_columns);
  void reserve_linear(const LowbitPlan& plan);
  void reserve_attention(const AttentionShape& shape);
  void* halves() const noexcept { return halves_.data(); }
  float* linear_partials() const noexcept { return static_cast<float*>(linear_partials_.data()); }
  void* queries() const noexcept { return queries_.data(); }
  float* attention_partials() const noexcept { return static_cast<float*>(attention_partials_.data()); }
  int* arrivals() const noexcept { return static_cast<int*>(arrivals_.data()); }

  // A linear without a norm reads f16: it asks for its input by name when it is made, and the operator whose output has
  // that name writes an f16 copy beside it, which lasts until the next such copy.
  void want_halves_of(const std::string& value, int num_columns);
  // Where to write the copy; nullptr if nobody asked.
  void* begin_halves_of(const std::string& value);
  // The copy, or nullptr if it is not the one that was written last.
  const void* halves_of(const std::string& value) const;

  uint64_t device_bytes() const noexcept;

 private:
  const DeviceLimits limits_;
  const CudaPassLimits pass_;
  const cudaStream_t stream_;
  std::map<const void*, void*> weights_;
  uint64_t weight_bytes_ = 0;
  Scratch staging_;  // packed weights on their way
  Scratch halves_, queries_, attention_partials_, arrivals_, companion_;
  Scratch linear_partials_{0xFF};
  std::set<std::string> wanted_;
  std::string companion_of_;
};

}  // namespace pilotfish::cuda
