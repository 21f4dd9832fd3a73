#include "register.h"

#include <array>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "embedding_op.h"
#include "gather_rows_op.h"
#include "instruction_set.h"
#include "join_op.h"
#include "linear_op.h"
#include "norm_activation_op.h"
#include "operator.h"
#include "paged_attention_op.h"
#include "row_steps_op.h"
#include "rows_part_op.h"

namespace pilotfish {
namespace {

// The operators for one number of threads.
class Operators {
 public:
  explicit Operators(int32_t num_threads)
      : embedding_(num_threads),
        linear_(num_threads),
        paged_attention_(num_threads),
        gather_rows_(num_threads),
        join_(num_threads),
        rows_part_(num_threads),
        norm_activation_(num_threads),
        row_steps_(num_threads) {}

  std::array<const OrtCustomOp*, 8> all() const {
    return {&embedding_, &linear_,    &paged_attention_, &gather_rows_,
            &join_,      &rows_part_, &norm_activation_, &row_steps_};
  }

 private:
  Operator<EmbeddingOp> embedding_;
  Operator<LinearOp> linear_;
  Operator<PagedAttentionOp> paged_attention_;
  Operator<GatherRowsOp> gather_rows_;
  Operator<JoinOp> join_;
  Operator<RowsPartOp> rows_part_;
  Operator<NormActivationOp> norm_activation_;
  Operator<RowStepsOp> row_steps_;
};

// ONNX Runtime keeps pointers to operators and domains for as long as a session lives, and sessions may outlive any
// owner we could name: these live until the process ends. A domain for each copy of ONNX Runtime, found by its API
// table, and number of threads.
OrtCustomOpDomain* shared_domain(const OrtApi* api, int32_t num_threads) {
  static std::mutex mutex;
  static auto& domains = *new std::map<std::pair<const OrtApi*, int32_t>, OrtCustomOpDomain*>();
  static auto& operators = *new std::map<int32_t, Operators>();

  const std::lock_guard lock(mutex);
  OrtCustomOpDomain*& domain = domains[{api, num_threads}];
  if (domain == nullptr) {
    const Operators& ops = operators.try_emplace(num_threads, num_threads).first->second;
    OrtCustomOpDomain* created = nullptr;
    throw_on_error(api, ort_abi::CreateCustomOpDomain(api, "pilotfish", &created));
    for (const OrtCustomOp* op : ops.all()) throw_on_error(api, ort_abi::CustomOpDomain_Add(api, created, op));
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
extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  const OrtApi* const api = base->GetApi(kOrtApiVersion);
  if (api == nullptr) {
    // The status functions of the first API version report what a too old ONNX Runtime lacks.
    return ort_abi::CreateStatus(base->GetApi(1), ORT_FAIL, "pilotfish needs ONNX Runtime 1.22 or later");
  }
  return pilotfish::register_operators(api, options, 0);
}
