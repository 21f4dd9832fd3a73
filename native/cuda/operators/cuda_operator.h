// An OrtCustomOp of the CUDA provider, made from a kernel class, which provides:
//   kName and kInputs, see operator_base.h
//   Kernel(ModelContext&, const NodeInfo&);                may throw
//   void enqueue(const NodeIo&, cudaStream_t);             may throw
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/ort_abi.h"
#include "kernel_io.h"
#include "model_context.h"
#include "operator_base.h"

namespace pilotfish::cuda {

// A node while its kernel is made.
class NodeInfo : public KernelInfo {
 public:
  using KernelInfo::KernelInfo;

  std::string input_name(size_t index) const { return name(ort_abi::KernelInfo_GetInputName, index); }
  std::string output_name(size_t index) const { return name(ort_abi::KernelInfo_GetOutputName, index); }
  // An initializer of num_bytes in host memory; throws if the input is none.
  const void* constant(size_t index, size_t num_bytes) const { return constant(index, num_bytes, 1); }
  // An initializer of f32 in device memory; nullptr if the input is left out.
  const float* device_floats(size_t index, size_t count) const;

 private:
  template <typename Get>
  std::string name(const Get& get, size_t index) const {
    size_t size = 0;
    throw_on_error(api_, get(api_, info_, index, nullptr, &size));
    std::string text(size, '\0');
    throw_on_error(api_, get(api_, info_, index, text.data(), &size));
    text.resize(size - 1);
    return text;
  }

  const void* constant(size_t index, size_t num_bytes, size_t element_bytes) const;
};

// A node while it runs: tensors whose data lie on the device.
class NodeIo {
 public:
  NodeIo(const OrtApi* api, OrtKernelContext* context);

  // Inputs past the node's last one count as left out.
  Tensor input(size_t index) const;
  float* output(size_t index, std::initializer_list<int64_t> dims) const;
  // Of another tensor's shape.
  float* output_like(size_t index, const Tensor& like) const;
  cudaStream_t stream() const;

 private:
  const OrtApi* api_;
  OrtKernelContext* context_;
  size_t num_inputs_ = 0;
};

template <typename Kernel>
class CudaOperator : public OperatorBase<Kernel> {
  using Base = OperatorBase<Kernel>;

 public:
  explicit CudaOperator(ModelContext& context) : context_(context) {
    Base::GetExecutionProviderType = [](const OrtCustomOp*) { return "CUDAExecutionProvider"; };
    Base::CreateKernelV2 = create;
    Base::KernelComputeV2 = compute;
    Base::KernelDestroy = [](void* kernel) { delete static_cast<Bound*>(kernel); };
  }

 private:
  struct Bound {
    const OrtApi* api;
    Kernel kernel;
  };

  static OrtStatus* create(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
    ModelContext& context = static_cast<const CudaOperator*>(op)->context_;
    return Base::guard(api, [&] { *kernel = new Bound{api, Kernel(context, NodeInfo(api, info))}; });
  }

  static OrtStatus* compute(void* kernel, OrtKernelContext* context) {
    Bound& bound = *static_cast<Bound*>(kernel);
    return Base::guard(bound.api, [&] {
      const NodeIo io(bound.api, context);
      bound.kernel.enqueue(io, io.stream());
    });
  }

  ModelContext& context_;
};

}  // namespace pilotfish::cuda
