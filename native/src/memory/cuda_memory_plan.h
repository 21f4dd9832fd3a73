// Device memory of a model on a GPU, bounded from the manifest alone: what the operators of native/cuda allocate,
// without a GPU being there.
#pragma once

#include <cstdint>

#include "bundle/manifest.h"
#include "device/cuda_device.h"

namespace pilotfish {

// What the driver takes for a context, before anything is loaded; what ONNX Runtime's provider and the kernels of both
// libraries take; and a captured pass. Measured on an H200 (263 MiB, and 33 for the stack that cuda_device.cpp leaves;
// 90 to 110 MiB; 0.13 to 0.45 MiB a pass, a 7B model's), with some room.
inline constexpr uint64_t kCudaContextBytes = uint64_t{304} << 20;
inline constexpr uint64_t kCudaProviderBytes = uint64_t{128} << 20;
inline constexpr uint64_t kRecordedPassBytes = uint64_t{1} << 19;
// A session of a head's graph with its recorded passes, which have few kernels.
inline constexpr uint64_t kHeadSessionBytes = uint64_t{16} << 20;

// Multiprocessors where no device tells: more than any card of today has.
inline constexpr int32_t kMostMultiprocessors = 192;

// Of a recorded pass, for each of its weights that come from host memory: a copy, a memset, their dependencies.
inline constexpr uint64_t kStreamedNodeBytes = uint64_t{1} << 11;

// The limits of a model's passes that decide its memory.
struct CudaPassSizes {
  int32_t num_rows;
  int32_t num_outputs;
  int32_t max_context;
  int32_t num_sms;
  int32_t max_seqs = 1;      // that share a pass
  int32_t num_streamed = 0;  // weights of the target that come from host memory, at most
};

// Of the operators' repacked weights together, at most.
uint64_t cuda_repacked_bytes(const ModelEntry& model);
uint64_t cuda_repacked_bytes(const HeadEntry& head);
// Of one of its packed tensors.
uint64_t cuda_repacked_bytes(const ModelEntry& model, const TensorEntry& tensor);
// The same with the f32 tensors, without what is streamed from host memory.
uint64_t cuda_weight_bytes(const ModelEntry& model, uint64_t streamed_bytes = 0);
uint64_t cuda_weight_bytes(const HeadEntry& head);
// Of what streamed weights pass through, the largest of which has so many.
uint64_t cuda_slot_bytes(uint64_t largest_bytes);
// Scratch of the operators, inputs, logits, ONNX Runtime's arena, captured passes and rounds of both models and of the
// sessions of a head, whose own buffers come to it. What the host keeps for sampling is not on the device.
uint64_t cuda_activation_bytes(const Manifest& manifest, const CudaPassSizes& sizes, int32_t max_draft_tokens);

}  // namespace pilotfish
