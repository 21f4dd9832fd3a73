// Registration of the operators of the domain "pilotfish" with one ONNX Runtime.
#pragma once

#include "base/ort_abi.h"

namespace pilotfish {

// Adds the operators of GRAPH.md to the options; every session made from them can run pilotfish graphs. Each
// copy of ONNX Runtime in the process (its own `api`) gets a domain for each num_threads, which lives until the process
// ends. The kernels of all sessions with the same num_threads share that many threads, the one that runs a session
// included; 0: they use the session's intra-op threads. Returns nullptr or the failure's status, which the caller
// releases.
OrtStatus* register_operators(const OrtApi* api, OrtSessionOptions* options, int32_t num_threads) noexcept;

}  // namespace pilotfish
