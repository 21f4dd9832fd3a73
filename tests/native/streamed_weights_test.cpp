// Weights in page-locked host memory, over a CUDA runtime of the test's own
// that counts what is allocated and refuses what it is told to refuse.
#include "operators/streamed_weights.h"

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "check.h"

namespace {

// What the runtime has given out and not got back, and how many allocations of
// each kind succeed before one is refused; -1: all do.
struct Runtime {
  std::set<void*> host, device, objects;
  int host_allocations_left = -1;
  int device_allocations_left = -1;
  cudaError_t last_error = cudaSuccess;
  std::vector<size_t> locked;  // bytes of each page-locked allocation

  bool is_empty() const { return host.empty() && device.empty() && objects.empty(); }
};

Runtime runtime;

cudaError_t allocate(std::set<void*>& owners, int& left, void** memory, size_t num_bytes) {
  if (left == 0) return runtime.last_error = cudaErrorMemoryAllocation;
  left = left > 0 ? left - 1 : left;
  *memory = std::calloc(1, num_bytes);
  owners.insert(*memory);
  return cudaSuccess;
}

cudaError_t release(std::set<void*>& owners, void* memory) {
  if (!memory) return cudaSuccess;
  if (owners.erase(memory) == 0) return runtime.last_error = cudaErrorInvalidValue;
  std::free(memory);
  return cudaSuccess;
}

template <class Handle>
cudaError_t create(Handle* handle) {
  *handle = static_cast<Handle>(std::calloc(1, 1));
  runtime.objects.insert(*handle);
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaMalloc(void** memory, size_t num_bytes) {
  return allocate(runtime.device, runtime.device_allocations_left, memory, num_bytes);
}
cudaError_t cudaFree(void* memory) { return release(runtime.device, memory); }
cudaError_t cudaMallocHost(void** memory, size_t num_bytes) {
  const cudaError_t error = allocate(runtime.host, runtime.host_allocations_left, memory, num_bytes);
  if (error == cudaSuccess) runtime.locked.push_back(num_bytes);
  return error;
}
cudaError_t cudaFreeHost(void* memory) { return release(runtime.host, memory); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return create(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return release(runtime.objects, stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return create(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return release(runtime.objects, event); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t num_bytes, cudaMemcpyKind, cudaStream_t) {
  std::memcpy(to, from, num_bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t num_bytes, cudaStream_t) {
  std::memset(memory, value, num_bytes);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = runtime.last_error;
  runtime.last_error = cudaSuccess;
  return error;
}
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorMemoryAllocation"; }
const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }

namespace pilotfish::cuda {

// A weight that is not repacked.
size_t lowbit_weight_bytes(const LowbitShape& shape) { return size_t(shape.in_features) * shape.out_features; }
cudaError_t repack_lowbit(const LowbitShape& shape, const void* packed, void* weights_out, cudaStream_t) {
  std::memcpy(weights_out, packed, lowbit_weight_bytes(shape));
  return cudaSuccess;
}

}  // namespace pilotfish::cuda

namespace {

using pilotfish::CudaWeightRoom;
using pilotfish::cuda::LowbitShape;
using pilotfish::cuda::StreamedWeights;
using pilotfish::cuda::WeightFormat;

constexpr LowbitShape kShape{WeightFormat::kInt8, 64, 16};
constexpr size_t kBytes = 1024;

struct Weights {
  std::vector<std::string> packed{std::string(kBytes, 'a'), std::string(kBytes, 'b'), std::string(kBytes, 'c')};

  CudaWeightRoom room() const {
    CudaWeightRoom room{.resident_bytes = 0, .streamed = {}, .slot_bytes = kBytes};
    for (const std::string& weight : packed) room.streamed.push_back(weight.data());
    return room;
  }
  size_t add(StreamedWeights& streamed, size_t index) const {
    return streamed.add(kShape, packed[index].data(), packed[index].data());
  }
};

void test_each_weight_is_locked_once() {
  runtime = {};
  const Weights weights;
  {
    StreamedWeights streamed(weights.room(), nullptr);
    for (const size_t index : {0, 1, 2, 1}) weights.add(streamed, index);
    CHECK(runtime.locked == std::vector<size_t>(3, kBytes));
    for (int pass = 0; pass < 3; ++pass) {
      size_t reader = 0;
      for (const char expected : {'a', 'b', 'c', 'b'}) {
        const auto* const found = static_cast<const char*>(streamed.acquire(reader++));
        CHECK(found[0] == expected && found[kBytes - 1] == expected);
        streamed.release();
      }
    }
  }
  CHECK(runtime.is_empty());
}

// Whichever allocation it is, one sentence says so, and nothing is left.
void test_page_locked_memory_that_is_refused() {
  for (int allowed = 0; allowed < 3; ++allowed) {
    runtime = {};
    runtime.host_allocations_left = allowed;
    const Weights weights;
    {
      StreamedWeights streamed(weights.room(), nullptr);
      for (int i = 0; i < allowed; ++i) weights.add(streamed, i);
      CHECK_ERROR(PF_OUT_OF_MEMORY,
                  "the system refused 1024 bytes of page-locked memory for weights that stream to the GPU; a larger "
                  "memory budget streams fewer",
                  weights.add(streamed, allowed));
      CHECK_EQ(runtime.last_error, cudaSuccess);  // no later call reports it
      CHECK_EQ(runtime.host.size(), size_t(allowed));
    }
    CHECK(runtime.is_empty());
  }
}

void test_device_memory_that_is_refused() {
  runtime = {};
  runtime.device_allocations_left = 0;
  const Weights weights;
  CHECK_ERROR(PF_OUT_OF_MEMORY, "cudaErrorMemoryAllocation", StreamedWeights(weights.room(), nullptr));
  CHECK(runtime.is_empty());
}

}  // namespace

int main() {
  test_each_weight_is_locked_once();
  test_page_locked_memory_that_is_refused();
  test_device_memory_that_is_refused();
  return check::result();
}
