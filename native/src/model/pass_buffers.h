// The small inputs and the logits of one model's passes: host memory that the engine fills and reads, and the memory
// that the session is bound to. On the CPU both are the same; on a CUDA device they are copies of each other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/pages.h"
#include "device/cuda_device.h"

namespace pilotfish {

struct PassSizes {
  int32_t max_rows;
  int32_t max_seqs;
  int32_t max_blocks;  // of a sequence
  int32_t max_outputs;
  int32_t max_hidden;
  int32_t num_logits;
};

class PassBuffers {
 public:
  // `device` is nullptr on the CPU.
  PassBuffers(const PassSizes& sizes, std::shared_ptr<CudaDevice> device);
  PassBuffers(PassBuffers&&) = delete;
  ~PassBuffers();

  std::span<int32_t> input_ids, position_ids, seq_starts, context_lens, block_table, output_rows, hidden_rows;
  std::span<uint64_t> tree_mask;
  float* logits = nullptr;  // [max_outputs, num_logits]

  // What the session is bound to in place of one of the arrays above.
  void* bound(const void* host) const noexcept;
  void* bound_logits() const noexcept { return bound_logits_; }

  // Copies to and from the device; nothing on the CPU.
  void upload() const;
  void download(size_t first_logit_byte, size_t num_bytes) const;

 private:
  template <typename Element>
  std::span<Element> take(size_t count) noexcept;

  std::shared_ptr<CudaDevice> device_;
  std::vector<std::byte> pageable_;  // of the CPU
  std::byte* host_;
  size_t num_bytes_ = 0;  // of the inputs
  std::optional<Pages> pages_;
  std::optional<CudaMemory> inputs_, device_logits_;
  void* bound_logits_ = nullptr;
};

}  // namespace pilotfish
