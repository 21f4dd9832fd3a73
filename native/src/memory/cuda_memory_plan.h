// Device memory of a model on a GPU, bounded from the manifest alone: what the operators of native/cuda allocate,
// without a GPU being there.
#pragma once

#include <cstdint>

#include "bundle/manifest.h"
#include "device/chain_lengths.h"
#include "device/cuda_device.h"

namespace pilotfish {

// What is not ours to count, measured on an H200. Of the driver's context, with the kernels that are loaded: 296 MiB
// before anything is loaded (263, and 33 for the stack that cuda_device.cpp leaves), and 8 of room. Of each session of
// ONNX Runtime's, whose provider keeps handles of cuBLAS and cuDNN with a workspace: 69 MiB, from what engines of two
// and of four sessions use beyond all that is counted below; cards before compute capability 9.0 have smaller
// workspaces. Of a kernel in a recording: 0.45 MiB are 168 kernels, a 7B model's pass.
inline constexpr uint64_t kCudaContextBytes = uint64_t{304} << 20;
inline constexpr uint64_t kCudaSessionBytes = uint64_t{70} << 20;
inline constexpr uint64_t kRecordedKernelBytes = 2816;

// Multiprocessors where no device tells: more than any card of today has.
inline constexpr int32_t kMostMultiprocessors = 192;

// The same for each weight that comes from host memory: a copy, a memset, their dependencies.
inline constexpr uint64_t kStreamedNodeBytes = uint64_t{1} << 11;

// The limits of a model's passes that decide its memory.
struct CudaPassSizes {
  int32_t num_rows;
  int32_t num_outputs;
  int32_t max_context;
  int32_t num_sms;
  int32_t max_seqs = 1;  // that share a pass
  bool streams = false;  // weights of the target come from host memory
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
// Of an allocation of so many bytes, what the driver gives beyond them; of small ones, which share pages, next to
// nothing.
uint64_t cuda_rounding_bytes(uint64_t num_bytes);
// The context and the sessions.
uint64_t cuda_runtime_bytes(const Manifest& manifest);
// Of a recorded pass of each model, bounded by the number of its tensors.
RecordedPassBytes recorded_pass_bytes(const Manifest& manifest, bool streams);
// Scratch of the operators, inputs, logits, ONNX Runtime's arena, recorded passes and rounds of both models and of the
// sessions of a head, whose own buffers come to it. What the host keeps for sampling is not on the device.
uint64_t cuda_activation_bytes(const Manifest& manifest, const CudaPassSizes& sizes, int32_t max_draft_tokens);

}  // namespace pilotfish
