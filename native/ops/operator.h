// An OrtCustomOp made from a kernel class, which provides:
//   kName and kInputs, see operator_base.h
//   explicit Kernel(const KernelInfo&);                   may throw
//   void compute(const KernelContext&);                   may throw
#pragma once

#include <array>
#include <memory>

#include "kernel_io.h"
#include "operator_base.h"

namespace pilotfish {

template <typename Kernel>
class Operator : public OperatorBase<Kernel> {
  using Base = OperatorBase<Kernel>;

 public:
  // num_threads: of the kernels' own workers; 0: ONNX Runtime's intra-op threads.
  explicit Operator(int32_t num_threads) : num_threads_(num_threads) {
    Base::GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
    Base::CreateKernelV2 = create;
    Base::KernelComputeV2 = compute;
    Base::KernelDestroy = [](void* kernel) { delete static_cast<Bound*>(kernel); };
  }

 private:
  // A kernel beside the API table of the ONNX Runtime that made it.
  struct Bound {
    const OrtApi* api;
    std::shared_ptr<Workers> workers;
    std::array<Tensor, Kernel::kInputs.size()> constants;  // see KernelInfo::constant()
    Kernel kernel;
  };

  static OrtStatus* create(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
    const int32_t num_threads = static_cast<const Operator*>(op)->num_threads_;
    return Base::guard(api, [&] {
      const KernelInfo node(api, info);
      std::array<Tensor, Kernel::kInputs.size()> constants;
      for (size_t index = 0; index < node.num_inputs(); ++index) constants[index] = node.constant(index);
      *kernel = new Bound{api, num_threads == 0 ? nullptr : Workers::shared(num_threads), constants, Kernel(node)};
    });
  }

  static OrtStatus* compute(void* kernel, OrtKernelContext* context) {
    Bound& bound = *static_cast<Bound*>(kernel);
    return Base::guard(bound.api, [&] {
      bound.kernel.compute(KernelContext(bound.api, context, bound.constants, bound.workers.get()));
    });
  }

  int32_t num_threads_;
};

}  // namespace pilotfish
