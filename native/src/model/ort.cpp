#include "model/ort.h"

#include <array>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/platform/files.h"
#include "base/platform/library.h"
#include "base/platform/text.h"
#include "base/status.h"
#include "model/node_placement.h"
#include "register.h"

namespace pilotfish {
namespace {

constexpr const char* kOldestVersion = "1.22";

const OrtApiBase* open_library(const std::string& path) {
  const platform::OpenedLibrary library = platform::open_library(path);
  if (library.lacks_memory) fail(PF_OUT_OF_MEMORY, "ONNX Runtime cannot be opened: ", library.reason);
  if (!library.handle) {
    fail(PF_ORT_MISSING, "ONNX Runtime cannot be opened: ", library.reason, "; pip install onnxruntime");
  }
  void* const symbol = platform::find_symbol(library.handle, "OrtGetApiBase");
  if (!symbol) fail(PF_ORT_MISSING, path, " is not ONNX Runtime: it has no OrtGetApiBase");
  return reinterpret_cast<const OrtApiBase* (*)()>(symbol)();
}

}  // namespace

pf_status ort_failure(std::string_view message) noexcept {
  const auto says = [&](std::string_view part) { return message.find(part) != std::string_view::npos; };
  // Our operators name CUDA's error or say it in words, the arena says that it failed to allocate, what() of a
  // bad_alloc is its name, and the system has words of its own.
  for (const std::string_view words : {"cudaErrorMemoryAllocation", "Failed to allocate memory", "bad_alloc",
                                       "out of memory", "Cannot allocate memory"}) {
    if (says(words)) return PF_OUT_OF_MEMORY;
  }
  return says("CUDA: cudaError") || says("CUDA failure") ? PF_CUDA_FAILED : PF_ORT_FAILED;
}

std::string Ort::version(const std::string& path) { return open_library(path)->GetVersionString(); }

std::shared_ptr<Ort> Ort::open(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Ort>> opened;  // the environment is the process's, whoever asks
  const std::lock_guard lock(mutex);
  std::weak_ptr<Ort>& entry = opened[path];
  if (auto ort = entry.lock()) return ort;
  // Shared by all engines that are open at the time.
  std::shared_ptr<Ort> ort(new Ort(path));
  entry = ort;
  return ort;
}

Ort::Ort(const std::string& path) {
  // Its wheels report processes and sessions to Microsoft, from the environment's creation on (seen with 1.32.0).
  platform::set_default_variable("ORT_DISABLE_TELEMETRY", "1");
  const OrtApiBase* base = open_library(path);
  api_ = base->GetApi(kOrtApiVersion);
  if (!api_) {
    fail(PF_ORT_VERSION, path, " is ONNX Runtime ", base->GetVersionString(), "; pilotfish needs ", kOldestVersion,
         " or newer: pip install -U onnxruntime");
  }
  placement_api_ = base->GetApi(kPlacementApiVersion);
  OrtThreadingOptions* threading = nullptr;
  check(ort_abi::CreateThreadingOptions(api_, &threading));
  const std::unique_ptr<OrtThreadingOptions, OrtRelease<ort_abi::ReleaseThreadingOptions>> owner(threading, {api_});
  check(ort_abi::SetGlobalIntraOpNumThreads(api_, threading, 1));
  check(ort_abi::SetGlobalInterOpNumThreads(api_, threading, 1));
  OrtEnv* env = nullptr;
  check(ort_abi::CreateEnvWithGlobalThreadPools(api_, ORT_LOGGING_LEVEL_ERROR, "pilotfish", threading, &env));
  env_ = OrtEnvPtr(env, {api_});
  check(ort_abi::DisableTelemetryEvents(api_, env));
  OrtMemoryInfo* info = nullptr;
  check(ort_abi::CreateCpuMemoryInfo(api_, OrtDeviceAllocator, OrtMemTypeDefault, &info));
  memory_info_ = OrtMemoryInfoPtr(info, {api_});
}

void Ort::check(OrtStatus* status) const {
  if (!status) return;
  const std::unique_ptr<OrtStatus, OrtRelease<ort_abi::ReleaseStatus>> owner(status, {api_});
  const char* const message = ort_abi::GetErrorMessage(api_, status);
  fail(ort_failure(message), "ONNX Runtime: ", message);
}

OrtSessionOptionsPtr Ort::session_options(int32_t num_threads) const {
  OrtSessionOptions* raw = nullptr;
  check(ort_abi::CreateSessionOptions(api_, &raw));
  OrtSessionOptionsPtr options(raw, {api_});
  // What was checked is what runs: optimisations would make other nodes and read weights, by their files' names.
  check(ort_abi::SetSessionGraphOptimizationLevel(api_, raw, ORT_DISABLE_ALL));
  check(ort_abi::SetSessionExecutionMode(api_, raw, ORT_SEQUENTIAL));
  // A pattern is kept for every shape ever seen; passes have many shapes and few, short-lived tensors.
  check(ort_abi::DisableMemPattern(api_, raw));
  check(ort_abi::DisablePerSessionThreads(api_, raw));
  // Sessions are made before their weights have been read: nothing may look at them until a pass does.
  check(ort_abi::AddSessionConfigEntry(api_, raw, "session.disable_prepacking", "1"));
  check(register_operators(api_, raw, num_threads));
  return options;
}

OrtSessionOptionsPtr Ort::cuda_session_options(int32_t device, void* stream, OrtCustomOpDomain* domain) const {
  OrtSessionOptions* raw = nullptr;
  check(ort_abi::CreateSessionOptions(api_, &raw));
  OrtSessionOptionsPtr options(raw, {api_});
  // As on the CPU; optimisations would look into initializers, which lie on the device.
  check(ort_abi::SetSessionGraphOptimizationLevel(api_, raw, ORT_DISABLE_ALL));
  check(ort_abi::SetSessionExecutionMode(api_, raw, ORT_SEQUENTIAL));
  check(ort_abi::DisableMemPattern(api_, raw));
  check(ort_abi::DisablePerSessionThreads(api_, raw));
  const char* const placement = placement_api_ ? kRecordPlacement : "session.disable_cpu_ep_fallback";
  check(ort_abi::AddSessionConfigEntry(api_, raw, placement, "1"));
  append_cuda(raw, device, stream);
  if (domain) check(ort_abi::AddCustomOpDomain(api_, raw, domain));
  return options;
}

void Ort::append_cuda(OrtSessionOptions* options, int32_t device, void* stream) const {
  OrtCUDAProviderOptionsV2* provider = nullptr;
  check_cuda(ort_abi::CreateCUDAProviderOptions(api_, &provider));
  const std::unique_ptr<OrtCUDAProviderOptionsV2, OrtRelease<ort_abi::ReleaseCUDAProviderOptions>> owner(provider,
                                                                                                         {api_});
  const std::string index = std::to_string(device);
  const std::array<const char*, 2> keys{"device_id", "arena_extend_strategy"};
  const std::array<const char*, 2> values{index.c_str(), "kSameAsRequested"};
  check_cuda(ort_abi::UpdateCUDAProviderOptions(api_, provider, keys.data(), values.data(), keys.size()));
  if (stream) {
    check_cuda(ort_abi::UpdateCUDAProviderOptionsWithValue(api_, provider, "user_compute_stream", stream));
  }
  check_cuda(ort_abi::SessionOptionsAppendExecutionProvider_CUDA_V2(api_, options, provider));
}

void Ort::check_cuda_provider(int32_t device) const {
  OrtSessionOptions* raw = nullptr;
  check(ort_abi::CreateSessionOptions(api_, &raw));
  const OrtSessionOptionsPtr options(raw, {api_});
  append_cuda(raw, device, nullptr);
}

void Ort::check_cuda_placement(const OrtSession* session, const std::string& path) const {
  if (!placement_api_) return;  // it was not to make such a session
  const std::vector<std::string> nodes = nodes_elsewhere(placement_api_, session, "CUDAExecutionProvider");
  if (nodes.empty()) return;
  fail(PF_UNSUPPORTED, path, ": ONNX Runtime's CUDA provider cannot run ", nodes.size(), " of its nodes, ",
       nodes.front(), nodes.size() > 1 ? " first" : "", ", and a pass may not leave the GPU; use device cpu");
}

void Ort::check_cuda(OrtStatus* status) const {
  if (!status) return;
  const std::unique_ptr<OrtStatus, OrtRelease<ort_abi::ReleaseStatus>> owner(status, {api_});
  fail(PF_ORT_MISSING, "ONNX Runtime's CUDA provider cannot be used: ", ort_abi::GetErrorMessage(api_, status),
       "; pip install 'pilotfish[cuda]' brings onnxruntime-gpu with CUDA's libraries and cuDNN");
}

OrtRunOptionsPtr Ort::unsynchronised_run() const {
  OrtRunOptions* raw = nullptr;
  check(ort_abi::CreateRunOptions(api_, &raw));
  OrtRunOptionsPtr options(raw, {api_});
  check(ort_abi::AddRunConfigEntry(api_, raw, "disable_synchronize_execution_providers", "1"));
  return options;
}

OrtSessionPtr Ort::create_session(const PlacedGraph& graph, OrtSessionOptions* options) const {
  // Bytes that say they are of ONNX Runtime's own format would be read as such, unchecked.
  check(ort_abi::AddSessionConfigEntry(api_, options, "session.load_model_format", "ONNX"));
  // It checks where the references to the weights lead, and reads none: all are initializers of the options.
  check(ort_abi::AddSessionConfigEntry(api_, options, "session.model_external_initializers_file_folder_path",
                                       platform::text_of_path(graph.folder).c_str()));
  OrtSession* session = nullptr;
  check(ort_abi::CreateSessionFromArray(api_, env_.get(), graph.bytes.data(), graph.bytes.size(), options, &session));
  return OrtSessionPtr(session, {api_});
}

OrtIoBindingPtr Ort::create_binding(OrtSession* session) const {
  OrtIoBinding* binding = nullptr;
  check(ort_abi::CreateIoBinding(api_, session, &binding));
  return OrtIoBindingPtr(binding, {api_});
}

OrtValuePtr Ort::tensor(void* data, size_t num_bytes, std::span<const int64_t> shape,
                        ONNXTensorElementDataType type) const {
  OrtValue* value = nullptr;
  check(ort_abi::CreateTensorWithDataAsOrtValue(api_, memory_info_.get(), data, num_bytes, shape.data(), shape.size(),
                                                type, &value));
  return OrtValuePtr(value, {api_});
}

OrtValuePtr Ort::cuda_tensor(int32_t device, void* data, size_t num_bytes, std::span<const int64_t> shape,
                             ONNXTensorElementDataType type) const {
  OrtMemoryInfo* info = nullptr;
  check(ort_abi::CreateMemoryInfo(api_, "Cuda", OrtDeviceAllocator, device, OrtMemTypeDefault, &info));
  const OrtMemoryInfoPtr owner(info, {api_});
  OrtValue* value = nullptr;
  check(ort_abi::CreateTensorWithDataAsOrtValue(api_, info, data, num_bytes, shape.data(), shape.size(), type, &value));
  return OrtValuePtr(value, {api_});
}

}  // namespace pilotfish
