#include "register.h"

#include <exception>
#include <mutex>
#include <new>
#include <unordered_map>

#include "embedding_op.h"
#include "instruction_set.h"
#include "linear_op.h"
#include "operator.h"
#include "paged_attention_op.h"

namespace pilotfish {
namespace {

// ONNX Runtime keeps pointers to operators and domains for as long as a session lives, and sessions may outlive any
// owner we could name: these live until the process ends. One domain for each copy of ONNX Runtime, found by its API
// table.
OrtCustomOpDomain* shared_domain(const OrtApi* api) {
  static std::mutex mutex;
  static auto& domains = *new std::unordered_map<const OrtApi*, OrtCustomOpDomain*>();
  static const auto& embedding = *new Operator<EmbeddingOp>();
  static const auto& linear = *new Operator<LinearOp>();
  static const auto& paged_attention = *new Operator<PagedAttentionOp>();

  const std::lock_guard lock(mutex);
  OrtCustomOpDomain*& domain = domains[api];
  if (domain == nullptr) {
    OrtCustomOpDomain* created = nullptr;
    throw_on_error(api, ort_abi::CreateCustomOpDomain(api, "pilotfish", &created));
    for (const OrtCustomOp* op : {static_cast<const OrtCustomOp*>(&embedding), static_cast<const OrtCustomOp*>(&linear),
                                  static_cast<const OrtCustomOp*>(&paged_attention)}) {
      throw_on_error(api, ort_abi::CustomOpDomain_Add(api, created, op));
    }
    domain = created;
  }
  return domain;
}

}  // namespace

OrtStatus* register_operators(const OrtApi* api, OrtSessionOptions* options) noexcept {
  try {
    instruction_set();  // a wrong PILOTFISH_CPU shows here
    return ort_abi::AddCustomOpDomain(api, options, shared_domain(api));
  } catch (const std::bad_alloc&) {
    return ort_abi::CreateStatus(api, ORT_FAIL, "out of memory");
  } catch (const std::exception& error) {
    return ort_abi::CreateStatus(api, ORT_FAIL, error.what());
  } catch (...) {
    return ort_abi::CreateStatus(api, ORT_FAIL, "unknown exception");
  }
}

}  // namespace pilotfish

// What SessionOptions.register_custom_ops_library() of any ONNX Runtime binding looks for.
extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  const OrtApi* const api = base->GetApi(kOrtApiVersion);
  if (api == nullptr) {
    // The status functions of the first API version report what a too old ONNX Runtime lacks.
    return ort_abi::CreateStatus(base->GetApi(1), ORT_FAIL, "pilotfish needs ONNX Runtime 1.22 or later");
  }
  return pilotfish::register_operators(api, options);
}
