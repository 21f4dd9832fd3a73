// Failed CUDA calls as Errors that name the call, its file and line.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/status.h"

namespace pilotfish::cuda {

inline pf_status status_of(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? PF_OUT_OF_MEMORY : PF_CUDA_FAILED;
}

// Names the file without the folder it was built in. Takes the error out of the runtime's own record too, so that a
// later call does not report it again. After a fault inside a kernel every call of the process fails: that is said.
[[noreturn]] inline void fail_call(cudaError_t error, const char* call, const char* file, int line) {
  cudaGetLastError();
  const bool is_lost = cudaFree(nullptr) != cudaSuccess;
  cudaGetLastError();
  fail(status_of(error), "CUDA: ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ") from ", call, " at ",
       std::string_view(file).substr(std::string_view(file).rfind('/') + 1), ":", line,
       is_lost ? "; a kernel has failed, and this process cannot use the GPU any more" : "");
}

}  // namespace pilotfish::cuda

#define PILOTFISH_CUDA_CHECK(call)                                              \
  do {                                                                          \
    const cudaError_t pilotfish_error = (call);                                 \
    if (pilotfish_error != cudaSuccess) {                                       \
      ::pilotfish::cuda::fail_call(pilotfish_error, #call, __FILE__, __LINE__); \
    }                                                                           \
  } while (false)
