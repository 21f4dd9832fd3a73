// An OrtCustomOp made from a kernel class, which provides:
//   static constexpr const char* kName;
//   static constexpr std::array<InputSpec, n> kInputs;    (one f32 output)
//   explicit Kernel(const KernelInfo&);                   may throw
//   void compute(const KernelContext&);                   may throw
#pragma once

#include <array>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "kernel_io.h"
#include "ort_abi.h"

namespace pilotfish {

struct InputSpec {
  ONNXTensorElementDataType type;  // UNDEFINED: the kernel checks it
  bool is_optional = false;
};

template <typename Kernel>
class Operator : public OrtCustomOp {
 public:
  // num_threads: of the kernels' own workers; 0: ONNX Runtime's intra-op threads.
  explicit Operator(int32_t num_threads) : OrtCustomOp{}, num_threads_(num_threads) {
    version = kOrtApiVersion;
    GetName = [](const OrtCustomOp*) { return Kernel::kName; };
    GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
    describe_inputs();
    describe_outputs();
    GetStartVersion = [](const OrtCustomOp*) { return 1; };
    GetEndVersion = [](const OrtCustomOp*) { return 1; };
    CreateKernelV2 = create;
    KernelComputeV2 = compute;
    KernelDestroy = [](void* kernel) { delete static_cast<Bound*>(kernel); };
  }

 private:
  // A kernel beside the API table of the ONNX Runtime that made it.
  struct Bound {
    const OrtApi* api;
    std::shared_ptr<Workers> workers;
    std::array<Tensor, Kernel::kInputs.size()> constants;  // see KernelInfo::constant()
    Kernel kernel;
  };

  void describe_inputs() {
    GetInputTypeCount = [](const OrtCustomOp*) { return Kernel::kInputs.size(); };
    GetInputType = [](const OrtCustomOp*, size_t index) { return Kernel::kInputs[index].type; };
    GetInputCharacteristic = [](const OrtCustomOp*, size_t index) {
      return Kernel::kInputs[index].is_optional ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
    };
    GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
    GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
    GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
  }

  void describe_outputs() {
    GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
    GetOutputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
    GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return INPUT_OUTPUT_REQUIRED; };
    GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
    GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  }

  static OrtStatus* create(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
    const int32_t num_threads = static_cast<const Operator*>(op)->num_threads_;
    return guard(api, [&] {
      const KernelInfo node(api, info);
      std::array<Tensor, Kernel::kInputs.size()> constants;
      for (size_t index = 0; index < node.num_inputs(); ++index) constants[index] = node.constant(index);
      *kernel = new Bound{api, num_threads == 0 ? nullptr : Workers::shared(num_threads), constants, Kernel(node)};
    });
  }

  static OrtStatus* compute(void* kernel, OrtKernelContext* context) {
    Bound& bound = *static_cast<Bound*>(kernel);
    return guard(bound.api, [&] {
      bound.kernel.compute(KernelContext(bound.api, context, bound.constants, bound.workers.get()));
    });
  }

  // Nothing crosses the C boundary.
  template <typename Body>
  static OrtStatus* guard(const OrtApi* api, const Body& body) noexcept {
    try {
      body();
      return nullptr;
    } catch (const std::bad_alloc&) {
      return ort_abi::CreateStatus(api, ORT_FAIL, "out of memory");
    } catch (const std::exception& error) {
      const auto message = std::string("pilotfish.") + Kernel::kName + ": " + error.what();
      return ort_abi::CreateStatus(api, ORT_INVALID_ARGUMENT, message.c_str());
    } catch (...) {
      return ort_abi::CreateStatus(api, ORT_FAIL, "unknown exception");
    }
  }

  int32_t num_threads_;
};

}  // namespace pilotfish
