// The first kernel of a round: its outcome begins empty.
#include "kernels.h"
#include "round_kernels.cuh"

namespace pilotfish::cuda {
namespace {

__global__ void round_start_kernel(RoundOutcome* outcome) {
  outcome->is_broken = 0;
  outcome->started = outcome->drafted = clock_ns();
}

}  // namespace

cudaError_t launch_round_start(const RoundMemory& memory, cudaStream_t stream) {
  round_start_kernel<<<1, 1, 0, stream>>>(memory.outcome);
  return cudaGetLastError();
}

}  // namespace pilotfish::cuda
