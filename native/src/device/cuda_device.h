// What the engine asks of a CUDA device. libpilotfish_cuda implements it and is opened only where a GPU is asked for,
// so this library links nothing of CUDA. Every failure is an Error that names the CUDA call, its file and line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ort_abi.h"
#include "device/round_kernels.h"
#include "device/row_gather.h"

namespace pilotfish {

struct CudaDeviceInfo {
  std::string name;
  int32_t driver_version;      // 13000: the newest CUDA that the driver runs is 13.0
  int32_t compute_capability;  // 90 is 9.0
  int32_t num_sms;
  uint64_t total_bytes;
  uint64_t free_bytes;
};

// What decides the memory of a session's operators: its largest pass.
struct CudaPassLimits {
  int32_t max_rows;
  int32_t max_blocks;
  int32_t block_size;
};

// Room for repacked weights.
struct CudaWeightRoom {
  uint64_t resident_bytes;                 // of those that stay on the device together, at most
  std::vector<const void*> streamed = {};  // packed weights of linears that are to stay in host memory, repacked
  uint64_t slot_bytes = 0;                 // of the largest of these, at most
};

// Repacked weights, made from host memory by the operators of the sessions that share them. Must outlive these.
class CudaWeights {
 public:
  virtual ~CudaWeights() = default;
  // Frees what only loading needed: a session that exists does not touch the host memory any more. Another session over
  // these weights takes it anew.
  virtual void end_load() = 0;
};

// The operators of one session with their scratch memory. Must outlive the session.
class CudaOperators {
 public:
  virtual ~CudaOperators() = default;
  // The domain to add to the session's options.
  virtual OrtCustomOpDomain* domain() noexcept = 0;
  // Of passes of several sequences from now on: rows that none of these has more of; 0: it is not known. The lengths
  // themselves lie on the device.
  virtual void bound_sequence_rows(int32_t most_rows) noexcept = 0;
};

// Work recorded once and repeated by launch().
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  virtual void launch() = 0;
};

// A device with one stream; everything that is enqueued runs in order. Any thread may use it, one at a time.
class CudaDevice {
 public:
  virtual ~CudaDevice() = default;

  virtual CudaDeviceInfo info() const = 0;
  // Bytes a second that a kernel reads which does nothing else; takes some milliseconds and up to 1 GiB.
  virtual double measure_read_bandwidth() = 0;
  virtual int32_t index() const noexcept = 0;
  virtual void* stream() const noexcept = 0;  // cudaStream_t

  // Throws PF_OUT_OF_MEMORY with the bytes asked for and free.
  virtual void* allocate(size_t num_bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  virtual void* allocate_host(size_t num_bytes) = 0;  // page-locked
  virtual void release_host(void* memory) noexcept = 0;

  // Enqueued; host memory must stay as it is until synchronize().
  virtual void upload(void* device, const void* host, size_t num_bytes) = 0;
  virtual void download(void* host, const void* device, size_t num_bytes) = 0;
  // `height` pieces of `width` bytes, one every `pitch` bytes.
  virtual void copy(void* target, const void* source, size_t pitch, size_t width, size_t height) = 0;
  // `depth` times that, one every `stride` bytes, a multiple of `pitch`.
  virtual void copy_strided(void* target, const void* source, size_t pitch, size_t width, size_t height, size_t stride,
                            size_t depth) = 0;
  virtual void fill(void* target, int byte, size_t pitch, size_t width, size_t height) = 0;
  virtual void gather_rows(const RowGather& gather) = 0;
  virtual void synchronize() = 0;

  // What `lender` has repacked from the same host memory is shared; nullptr: nobody lends. It must outlive the result.
  // Throws PF_OUT_OF_MEMORY with the bytes where page-locked memory for streamed weights is refused, as the operators
  // do that read them.
  virtual std::unique_ptr<CudaWeights> create_weights(const CudaWeightRoom& room, const CudaWeights* lender) = 0;
  virtual std::unique_ptr<CudaOperators> create_operators(const OrtApi* api, const CudaPassLimits& limits,
                                                          CudaWeights& weights) = 0;
  // Records what `enqueue` puts on the stream instead of running it.
  virtual std::unique_ptr<CudaGraph> record(const std::function<void()>& enqueue) = 0;

  // The kernels of a round, enqueued.
  virtual void start_round(const RoundMemory& memory) = 0;
  // For sampling, before the rows are searched: filters, and the noise of the round's seed.
  virtual void add_noise(const NoisyRows& rows, const RoundMemory& memory) = 0;
  virtual void choose_tokens(const DraftStep& step, const RoundMemory& memory) = 0;
  virtual void choose_tokens(const TargetChoice& choice, const RoundMemory& memory) = 0;
  // The likeliest tokens of rows, for drafts that the host makes.
  virtual void find_likeliest(const LogitRows& rows, const LikelyMemory& memory) = 0;
  virtual void grow_tree(const TreeStep& step, const RoundMemory& memory) = 0;
};

// What both libraries must agree on; a mismatch is refused when the library is opened.
inline constexpr uint32_t kCudaInterfaceVersion = 9;
inline constexpr const char* kCudaOpenSymbol = "pilotfish_cuda_open";
// Makes a device of the given index, which check_build() accepts. Throws.
using CudaOpenFunction = CudaDevice* (*)(int32_t index);

// Device memory that frees itself.
class CudaMemory {
 public:
  CudaMemory(std::shared_ptr<CudaDevice> device, size_t num_bytes)
      : device_(std::move(device)), data_(static_cast<std::byte*>(device_->allocate(num_bytes))) {}
  CudaMemory(CudaMemory&& other) noexcept : device_(std::move(other.device_)), data_(other.data_) {
    other.data_ = nullptr;
  }
  CudaMemory& operator=(CudaMemory&&) = delete;
  ~CudaMemory() {
    if (data_) device_->release(data_);
  }
  std::byte* data() const noexcept { return data_; }

 private:
  std::shared_ptr<CudaDevice> device_;
  std::byte* data_;
};

}  // namespace pilotfish
