// Which bundles the CUDA kernels can run, told from the manifest.
#pragma once

#include "bundle/manifest.h"

namespace pilotfish {

// Throws PF_UNSUPPORTED, naming the model, the part and the remedy, where a weight or cache has a type that the kernels
// of native/cuda lack.
void check_cuda_formats(const Manifest& manifest);

}  // namespace pilotfish
