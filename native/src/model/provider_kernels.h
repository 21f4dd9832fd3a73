// The kernels of ONNX Runtime's own CUDA provider: its builds have code for some cards alone. The operators of GRAPH.md
// have kernels of ours, so that a graph of these alone runs on every card that libpilotfish_cuda has code for.
#pragma once

#include <cstdint>
#include <filesystem>

#include "bundle/graph_places.h"
#include "device/cuda_device.h"
#include "model/ort.h"

namespace pilotfish {

// Whether they count as missing on every card: PILOTFISH_CUDA_PROVIDER=none, by which tests find graphs that need them.
// Throws PF_INVALID_ARGUMENT where the variable has another value.
bool refuses_provider_kernels();

// Runs one of them on the device of that index, unless they are refused.
bool provider_kernels_run(const Ort& ort, int32_t device);

// Throws PF_UNSUPPORTED where a graph needs one and they do not run on the device; names the node.
void check_provider_kernels(const Ort& ort, const CudaDevice& device, const PlacedGraph& graph,
                            const std::filesystem::path& file);

}  // namespace pilotfish
