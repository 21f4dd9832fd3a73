// Registration of the operators of the domain "pilotfish" with one ONNX Runtime.
#pragma once

#include "ort_abi.h"

namespace pilotfish {

// Adds Embedding, Linear and PagedAttention to the options; every session made from them can run pilotfish graphs. Each
// copy of ONNX Runtime in the process (its own `api`) gets its own domain, which lives until the process ends.
// Returns nullptr or the failure's status, which the caller releases.
OrtStatus* register_operators(const OrtApi* api, OrtSessionOptions* options) noexcept;

}  // namespace pilotfish
