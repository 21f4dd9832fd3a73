// Device memory of a model on a GPU, bounded from the manifest alone: what the operators of native/cuda allocate,
// without a GPU being there.
#pragma once

#include <cstdint>

#include "cuda_device.h"
#include "manifest.h"

namespace pilotfish {

// What the driver takes for a context and the kernels of both libraries, before anything is loaded; and what ONNX
// Runtime's provider with cuBLAS takes, and a captured pass. NOTES.md has the measurements.
inline constexpr uint64_t kCudaContextBytes = uint64_t{640} << 20;
inline constexpr uint64_t kCudaProviderBytes = uint64_t{160} << 20;
inline constexpr uint64_t kRecordedPassBytes = uint64_t{1} << 20;

// Multiprocessors where no device tells: more than any card of today has.
inline constexpr int32_t kMostMultiprocessors = 192;

// The limits of a model's passes that decide its memory.
struct CudaPassSizes {
  int32_t num_rows;
  int32_t num_outputs;
  int32_t max_context;
  int32_t num_sms;
};

// Repacked weights and f32 tensors.
uint64_t cuda_weight_bytes(const ModelEntry& model);
// Scratch of the operators, inputs, logits, ONNX Runtime's arena and captured passes.
uint64_t cuda_pass_bytes(const ModelEntry& model, const CudaPassSizes& sizes);

}  // namespace pilotfish
