#include "register.h"

#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "instruction_set.h"
#include "kernel_io.h"
#include "operators.h"
#include "pilotfish.h"

namespace pilotfish {
namespace {

// ONNX Runtime keeps pointers to operators and domains for as long as a session lives, and sessions may outlive any
// owner we could name: these live until the process ends. A domain for each copy of ONNX Runtime, found by its API
// table, and number of threads.
OrtCustomOpDomain* shared_domain(const OrtApi* api, int32_t num_threads) {
  static std::mutex mutex;
  static auto& domains = *new std::map<std::pair<const OrtApi*, int32_t>, OrtCustomOpDomain*>();
  static auto& kept = *new std::vector<OperatorPtr>();

  const std::lock_guard lock(mutex);
  OrtCustomOpDomain*& domain = domains[{api, num_threads}];
  if (domain == nullptr) {
    OrtCustomOpDomain* created = nullptr;
    throw_on_error(api, ort_abi::CreateCustomOpDomain(api, "pilotfish", &created));
    for (const auto make : kOperators) {
      throw_on_error(api, ort_abi::CustomOpDomain_Add(api, created, kept.emplace_back(make(num_threads)).get()));
    }
    domain = created;
  }
  return domain;
}

}  // namespace

OrtStatus* register_operators(const OrtApi* api, OrtSessionOptions* options, int32_t num_threads) noexcept {
  try {
    instruction_set();  // a wrong PILOTFISH_CPU shows here
    return ort_abi::AddCustomOpDomain(api, options, shared_domain(api, num_threads));
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
extern "C" PF_API OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  const OrtApi* const api = base->GetApi(kOrtApiVersion);
  if (api == nullptr) {
    // The status functions of the first API version report what a too old ONNX Runtime lacks.
    return ort_abi::CreateStatus(base->GetApi(1), ORT_FAIL, "pilotfish needs ONNX Runtime 1.22 or later");
  }
  return pilotfish::register_operators(api, options, 0);
}
