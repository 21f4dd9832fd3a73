// What an engine will need, computed from the manifest alone. pf_plan and the loader share it, so that the table a user
// sees is the one that the engine is built by.
#pragma once

#include "bundle/manifest.h"
#include "device/cuda_device.h"
#include "pilotfish.h"

namespace pilotfish {

inline constexpr int32_t kBlockSize = 32;  // tokens a cache block

// Fills every field; num_free_blocks equals num_blocks. `asked` must have been checked, with num_threads resolved.
// `device` is the GPU as it is before anything is loaded; nullptr on the CPU, or to plan for a GPU that is not here.
// `host_bytes` is the memory that this process may have; 0: it does not count.
// What was not asked for shrinks where memory is scarce: the rows of a prompt's pass, then the context. Where there is
// no room even so, weights of the target are streamed, no more than needed: on a GPU those of layers from page-locked
// host memory, on the CPU any from the mapped file.
// Throws PF_INVALID_ARGUMENT when max_context is over the model's limit, PF_UNSUPPORTED when the GPU's kernels lack a
// format, and, with the table, PF_BUDGET_TOO_SMALL or PF_OUT_OF_MEMORY when nothing that is asked for fits the budget,
// what is free on the GPU, or host_bytes.
pf_engine_info plan_memory(const Manifest& manifest, const pf_engine_options& asked,
                           const CudaDeviceInfo* device = nullptr, uint64_t host_bytes = 0);

// The plan as a table of one line a part, in MiB.
std::string describe(const pf_engine_info& plan);

}  // namespace pilotfish
