// ONNX Runtime as this library uses it: the shared library opened at run time, its environment, owners for its objects
// and one exception for its failures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/ort_abi.h"
#include "bundle/graph_places.h"
#include "pilotfish.h"

namespace pilotfish {

template <const auto& kRelease>
struct OrtRelease {
  const OrtApi* api = nullptr;
  template <typename Object>
  void operator()(Object* object) const noexcept {
    kRelease(api, object);
  }
};

using OrtEnvPtr = std::unique_ptr<OrtEnv, OrtRelease<ort_abi::ReleaseEnv>>;
using OrtSessionPtr = std::unique_ptr<OrtSession, OrtRelease<ort_abi::ReleaseSession>>;
using OrtSessionOptionsPtr = std::unique_ptr<OrtSessionOptions, OrtRelease<ort_abi::ReleaseSessionOptions>>;
using OrtRunOptionsPtr = std::unique_ptr<OrtRunOptions, OrtRelease<ort_abi::ReleaseRunOptions>>;
using OrtIoBindingPtr = std::unique_ptr<OrtIoBinding, OrtRelease<ort_abi::ReleaseIoBinding>>;
using OrtMemoryInfoPtr = std::unique_ptr<OrtMemoryInfo, OrtRelease<ort_abi::ReleaseMemoryInfo>>;
using OrtValuePtr = std::unique_ptr<OrtValue, OrtRelease<ort_abi::ReleaseValue>>;

// The status of a failure that ONNX Runtime reports with this message: that of the CUDA call or allocation that failed
// inside it, or PF_ORT_FAILED.
pf_status ort_failure(std::string_view message) noexcept;

class Ort {
 public:
  // The library at `path`, shared by the engines that are open together. Its own pool has one thread: the operators of
  // GRAPH.md bring theirs. Throws PF_ORT_MISSING or PF_ORT_VERSION.
  static std::shared_ptr<Ort> open(const std::string& path);
  // Version string of the library at `path`.
  static std::string version(const std::string& path);

  const OrtApi* api() const noexcept { return api_; }
  // Throws ort_failure() with ONNX Runtime's message, after releasing the status.
  void check(OrtStatus* status) const;

  // Options that every session of this library has, with the operators of GRAPH.md on num_threads threads.
  OrtSessionOptionsPtr session_options(int32_t num_threads) const;
  // The same for the CUDA provider, which runs everything on `stream`; nullptr: one of its own. The operators are those
  // of `domain`; nullptr: ONNX's alone. Throws PF_ORT_MISSING when this ONNX Runtime has no such provider or it lacks a
  // library.
  OrtSessionOptionsPtr cuda_session_options(int32_t device, void* stream, OrtCustomOpDomain* domain) const;
  // Throws PF_ORT_MISSING as above.
  void check_cuda_provider(int32_t device) const;
  // Throws PF_UNSUPPORTED when a node of a session made with cuda_session_options() is left to the CPU, and names it.
  void check_cuda_placement(const OrtSession* session, const std::string& path) const;
  // Options of runs that do not wait for the device.
  OrtRunOptionsPtr unsynchronised_run() const;
  // Of a graph whose bytes are at hand, not read again. Adds to the options.
  OrtSessionPtr create_session(const PlacedGraph& graph, OrtSessionOptions* options) const;
  OrtIoBindingPtr create_binding(OrtSession* session) const;
  // A tensor over the caller's memory, which must outlive it.
  OrtValuePtr tensor(void* data, size_t num_bytes, std::span<const int64_t> shape,
                     ONNXTensorElementDataType type) const;
  // The same over memory of a CUDA device.
  OrtValuePtr cuda_tensor(int32_t device, void* data, size_t num_bytes, std::span<const int64_t> shape,
                          ONNXTensorElementDataType type) const;

 private:
  explicit Ort(const std::string& path);
  void check_cuda(OrtStatus* status) const;
  // `stream` may be nullptr: one of the provider's own.
  void append_cuda(OrtSessionOptions* options, int32_t device, void* stream) const;

  const OrtApi* api_;
  const OrtApi* placement_api_;  // nullptr where ONNX Runtime is too old to tell where nodes run
  OrtEnvPtr env_;
  OrtMemoryInfoPtr memory_info_;
};

}  // namespace pilotfish
