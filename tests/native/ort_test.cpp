// What ONNX Runtime reports is told apart, and a library that is none or is too old is refused.
#include "model/ort.h"

#include "check.h"

int main() {
  using pilotfish::ort_failure;
  CHECK_EQ(ort_failure("Non-zero status code returned: pilotfish.Linear: CUDA: "
                       "cudaErrorMemoryAllocation (out of memory) "
                       "from cudaMalloc(&memory, num_repacked) at model_context.cpp:42"),
           pf_status{PF_OUT_OF_MEMORY});
  CHECK_EQ(ort_failure("bfc_arena.cc: Failed to allocate memory for requested "
                       "buffer of size 1048576"),
           pf_status{PF_OUT_OF_MEMORY});
  for (const char* message : {"Exception during initialization: std::bad_alloc", "std::bad_alloc",
                              "Non-zero status code returned while running Linear node: out of "
                              "memory",
                              "mmap: Cannot allocate memory"}) {
    CHECK_EQ(ort_failure(message), pf_status{PF_OUT_OF_MEMORY});
  }
  CHECK_EQ(ort_failure("pilotfish.Linear: CUDA: cudaErrorInvalidValue (invalid "
                       "argument) from launch at linear_op.cpp:80"),
           pf_status{PF_CUDA_FAILED});
  CHECK_EQ(ort_failure("CUDA failure 700: an illegal memory access was encountered"), pf_status{PF_CUDA_FAILED});
  CHECK_EQ(ort_failure("Protobuf parsing failed."), pf_status{PF_ORT_FAILED});
  CHECK_ERROR(PF_ORT_MISSING, "/nowhere/libonnxruntime.so", pilotfish::Ort::open("/nowhere/libonnxruntime.so"));
  CHECK_ERROR(PF_ORT_MISSING, "it has no OrtGetApiBase", pilotfish::Ort::open(FAKE_FOLDER "/fake_cuda_driver.so"));
  CHECK_ERROR(PF_ORT_VERSION, "is ONNX Runtime 1.16.3; pilotfish needs 1.22 or newer: pip install -U onnxruntime",
              pilotfish::Ort::open(FAKE_FOLDER "/fake_ort.so"));
  CHECK_EQ(pilotfish::Ort::version(FAKE_FOLDER "/fake_ort.so"), std::string("1.16.3"));
  return check::result();
}
