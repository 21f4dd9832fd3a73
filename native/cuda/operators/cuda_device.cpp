// The device behind cuda_device.h, and the one function that this library exports.
#include "device/cuda_device.h"

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "bandwidth.h"
#include "checked.h"
#include "cuda_operators.h"
#include "device/cuda_build.h"
#include "kernel_io.h"
#include "kernels.h"
#include "model_context.h"
#include "weight_store.h"

namespace pilotfish::cuda {
namespace {

class Operators : public CudaOperators {
 public:
  Operators(const OrtApi* api, const DeviceLimits& limits, const CudaPassLimits& pass, cudaStream_t stream,
            PartialSums& partials, WeightStore& weights)
      : api_(api), context_(limits, pass, stream, partials, weights) {
    throw_on_error(api_, ort_abi::CreateCustomOpDomain(api_, "pilotfish", &domain_));
    for (const auto make : kOperators) {
      throw_on_error(api_, ort_abi::CustomOpDomain_Add(api_, domain_, operators_.emplace_back(make(context_)).get()));
    }
  }
  ~Operators() override { ort_abi::ReleaseCustomOpDomain(api_, domain_); }

  OrtCustomOpDomain* domain() noexcept override { return domain_; }
  void bound_sequence_rows(int32_t most_rows) noexcept override { context_.bound_sequence_rows(most_rows); }

 private:
  const OrtApi* api_;
  ModelContext context_;
  std::vector<OperatorPtr> operators_;
  OrtCustomOpDomain* domain_ = nullptr;
};

class Graph : public CudaGraph {
 public:
  Graph(int32_t device, cudaStream_t stream, cudaGraph_t recorded) : device_(device), stream_(stream) {
    const cudaError_t error = cudaGraphInstantiate(&executable_, recorded, 0);
    cudaGraphDestroy(recorded);
    PILOTFISH_CUDA_CHECK(error);
  }
  ~Graph() override { cudaGraphExecDestroy(executable_); }
  void launch() override {
    PILOTFISH_CUDA_CHECK(cudaSetDevice(device_));
    PILOTFISH_CUDA_CHECK(cudaGraphLaunch(executable_, stream_));
  }

 private:
  int32_t device_;
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

// A context reserves stack for every thread that the card can run, 264 MiB of an H200's 527 by default; kernels whose
// stack is known, as all here, get it apart from that. A context that another library has made is left as it is.
void limit_stack(int32_t index) {
  constexpr size_t kStackBytes = 128;
  using GetState = int (*)(int, unsigned int*, int*);  // cuDevicePrimaryCtxGetState
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 7000, cudaEnableDefault, &result) !=
          cudaSuccess ||
      !function) {
    cudaGetLastError();
    return;
  }
  unsigned int flags = 0;
  int is_active = 1;
  if (reinterpret_cast<GetState>(function)(index, &flags, &is_active) != 0 || is_active != 0) return;
  if (cudaSetDevice(index) != cudaSuccess || cudaDeviceSetLimit(cudaLimitStackSize, kStackBytes) != cudaSuccess) {
    cudaGetLastError();  // the constructor's own calls report it
  }
}

// Every thread has a current device of its own, so each call chooses.
class Device : public CudaDevice {
 public:
  explicit Device(int32_t index) : index_(index) {
    limit_stack(index);
    check_room(cudaSetDevice(index));  // makes the context
    check_room(has_kernels());
    PILOTFISH_CUDA_CHECK(read_device_limits(&limits_));
    PILOTFISH_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~Device() override { cudaStreamDestroy(stream_); }

  CudaDeviceInfo info() const override {
    choose();
    cudaDeviceProp properties;
    PILOTFISH_CUDA_CHECK(cudaGetDeviceProperties(&properties, index_));
    int driver = 0;
    PILOTFISH_CUDA_CHECK(cudaDriverGetVersion(&driver));
    size_t free_bytes = 0, total_bytes = 0;
    PILOTFISH_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    return {properties.name, driver,    properties.major * 10 + properties.minor, properties.multiProcessorCount,
            total_bytes,     free_bytes};
  }
  double measure_read_bandwidth() override {
    choose();
    return cuda::measure_read_bandwidth(limits_, stream_);
  }
  int32_t index() const noexcept override { return index_; }
  void* stream() const noexcept override { return stream_; }

  void* allocate(size_t num_bytes) override {
    choose();
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, num_bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      size_t free_bytes = 0, total_bytes = 0;
      cudaMemGetInfo(&free_bytes, &total_bytes);
      fail(PF_OUT_OF_MEMORY, "device cuda:", index_, " refused ", num_bytes, " bytes: ", free_bytes, " of ",
           total_bytes, " are free; nvidia-smi lists who has the rest");
    }
    PILOTFISH_CUDA_CHECK(error);
    return memory;
  }
  void release(void* memory) noexcept override { cudaFree(memory); }
  void* allocate_host(size_t num_bytes) override {
    choose();
    void* memory = nullptr;
    PILOTFISH_CUDA_CHECK(cudaMallocHost(&memory, num_bytes));
    return memory;
  }
  void release_host(void* memory) noexcept override { cudaFreeHost(memory); }

  void upload(void* device, const void* host, size_t num_bytes) override {
    choose();
    PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(device, host, num_bytes, cudaMemcpyHostToDevice, stream_));
  }
  void download(void* host, const void* device, size_t num_bytes) override {
    choose();
    PILOTFISH_CUDA_CHECK(cudaMemcpyAsync(host, device, num_bytes, cudaMemcpyDeviceToHost, stream_));
  }
  void copy(void* target, const void* source, size_t pitch, size_t width, size_t height) override {
    choose();
    PILOTFISH_CUDA_CHECK(
        cudaMemcpy2DAsync(target, pitch, source, pitch, width, height, cudaMemcpyDeviceToDevice, stream_));
  }
  void copy_strided(void* target, const void* source, size_t pitch, size_t width, size_t height, size_t stride,
                    size_t depth) override {
    choose();
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = {const_cast<void*>(source), pitch, width, stride / pitch};
    copy.dstPtr = {target, pitch, width, stride / pitch};
    copy.extent = {width, height, depth};
    copy.kind = cudaMemcpyDeviceToDevice;
    PILOTFISH_CUDA_CHECK(cudaMemcpy3DAsync(&copy, stream_));
  }
  void fill(void* target, int byte, size_t pitch, size_t width, size_t height) override {
    choose();
    PILOTFISH_CUDA_CHECK(cudaMemset2DAsync(target, pitch, byte, width, height, stream_));
  }
  void gather_rows(const RowGather& gather) override {
    choose();
    PILOTFISH_CUDA_CHECK(launch_gather_rows(gather, stream_));
  }
  void synchronize() override {
    choose();
    PILOTFISH_CUDA_CHECK(cudaStreamSynchronize(stream_));
  }

  std::unique_ptr<CudaWeights> create_weights(const CudaWeightRoom& room, const CudaWeights* lender) override {
    choose();
    return std::make_unique<WeightStore>(room, static_cast<const WeightStore*>(lender), stream_);
  }
  std::unique_ptr<CudaOperators> create_operators(const OrtApi* api, const CudaPassLimits& pass,
                                                  CudaWeights& weights) override {
    choose();
    return std::make_unique<Operators>(api, limits_, pass, stream_, partials_, static_cast<WeightStore&>(weights));
  }

  std::unique_ptr<CudaGraph> record(const std::function<void()>& enqueue) override {
    choose();
    // Relaxed: ONNX Runtime may still take memory from the device for a shape it has not seen in this order.
    PILOTFISH_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
    cudaGraph_t recorded = nullptr;
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream_, &recorded);  // the stream is of use again
      if (recorded) cudaGraphDestroy(recorded);
      cudaGetLastError();
      throw;
    }
    PILOTFISH_CUDA_CHECK(cudaStreamEndCapture(stream_, &recorded));
    return std::make_unique<Graph>(index_, stream_, recorded);
  }

  void start_round(const RoundMemory& memory) override {
    choose();
    PILOTFISH_CUDA_CHECK(launch_round_start(memory, stream_));
  }
  void add_noise(const NoisyRows& rows, const RoundMemory& memory) override {
    choose();
    PILOTFISH_CUDA_CHECK(launch_add_noise(rows, memory, stream_));
  }
  void choose_tokens(const DraftStep& step, const RoundMemory& memory) override {
    choose();
    PILOTFISH_CUDA_CHECK(launch_choose_likeliest(step, memory, stream_));
  }
  void choose_tokens(const TargetChoice& choice, const RoundMemory& memory) override {
    choose();
    PILOTFISH_CUDA_CHECK(launch_choose_likeliest(choice, memory, stream_));
  }
  void find_likeliest(const LogitRows& rows, const LikelyMemory& memory) override {
    choose();
    PILOTFISH_CUDA_CHECK(launch_find_likeliest(rows, memory, stream_));
  }
  void grow_tree(const TreeStep& step, const RoundMemory& memory) override {
    choose();
    PILOTFISH_CUDA_CHECK(launch_grow_tree(step, memory, stream_));
  }

 private:
  void check_room(cudaError_t error) const {
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail(PF_OUT_OF_MEMORY, "device cuda:", index_,
           " has no room for a context and the kernels, some hundred MiB before anything is loaded; nvidia-smi lists "
           "who has its memory");
    }
    PILOTFISH_CUDA_CHECK(error);
  }
  void choose() const { PILOTFISH_CUDA_CHECK(cudaSetDevice(index_)); }

  int32_t index_;
  DeviceLimits limits_;
  cudaStream_t stream_ = nullptr;
  PartialSums partials_;
};

}  // namespace
}  // namespace pilotfish::cuda

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED const pilotfish::CudaBuild pilotfish_cuda_build;
const pilotfish::CudaBuild pilotfish_cuda_build = {pilotfish::kCudaInterfaceVersion, CUDART_VERSION,
                                                   PILOTFISH_CUDA_TARGETS};

EXPORTED pilotfish::CudaDevice* pilotfish_cuda_open(int32_t index) { return new pilotfish::cuda::Device(index); }
