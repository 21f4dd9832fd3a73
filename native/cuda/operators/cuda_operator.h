// An OrtCustomOp of the CUDA provider, made from a kernel class, which provides:
//   static constexpr const char* kName;
//   static constexpr std::array<Input, n> kInputs;         (one f32 output)
//   Kernel(ModelContext&, const NodeInfo&);                may throw
//   void enqueue(const NodeIo&, cudaStream_t);             may throw
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <string>

#include "kernel_io.h"
#include "model_context.h"
#include "ort_abi.h"

namespace pilotfish::cuda {

struct Input {
  enum class Place { kDevice, kHost };  // kHost: a constant that is read while the kernel is made

  ONNXTensorElementDataType type;
  bool is_optional = false;
  Place place = Place::kDevice;
};

// A node while its kernel is made.
class NodeInfo : public KernelInfo {
 public:
  NodeInfo(const OrtApi* api, const OrtKernelInfo* info) : KernelInfo(api, info), api_(api), info_(info) {}

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

  const OrtApi* api_;
  const OrtKernelInfo* info_;
};

// A node while it runs: tensors whose data lie on the device.
class NodeIo {
 public:
  NodeIo(const OrtApi* api, OrtKernelContext* context);

  // Inputs past the node's last one count as left out.
  Tensor input(size_t index) const;
  float* output(size_t index, std::initializer_list<int64_t> dims) const;
  cudaStream_t stream() const;

 private:
  const OrtApi* api_;
  OrtKernelContext* context_;
  size_t num_inputs_ = 0;
};

template <typename Kernel>
class CudaOperator : public OrtCustomOp {
 public:
  explicit CudaOperator(ModelContext& context) : OrtCustomOp{}, context_(context) {
    version = kOrtApiVersion;
    GetName = [](const OrtCustomOp*) { return Kernel::kName; };
    GetExecutionProviderType = [](const OrtCustomOp*) { return "CUDAExecutionProvider"; };
    describe_inputs();
    describe_outputs();
    GetStartVersion = [](const OrtCustomOp*) { return 1; };
    GetEndVersion = [](const OrtCustomOp*) { return 1; };
    CreateKernelV2 = create;
    KernelComputeV2 = compute;
    KernelDestroy = [](void* kernel) { delete static_cast<Bound*>(kernel); };
  }

 private:
  struct Bound {
    const OrtApi* api;
    Kernel kernel;
  };

  void describe_inputs() {
    GetInputTypeCount = [](const OrtCustomOp*) { return Kernel::kInputs.size(); };
    GetInputType = [](const OrtCustomOp*, size_t index) { return Kernel::kInputs[index].type; };
    GetInputCharacteristic = [](const OrtCustomOp*, size_t index) {
      return Kernel::kInputs[index].is_optional ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
    };
    GetInputMemoryType = [](const OrtCustomOp*, size_t index) {
      return Kernel::kInputs[index].place == Input::Place::kHost ? OrtMemTypeCPUInput : OrtMemTypeDefault;
    };
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
    ModelContext& context = static_cast<const CudaOperator*>(op)->context_;
    return guard(api, [&] { *kernel = new Bound{api, Kernel(context, NodeInfo(api, info))}; });
  }

  static OrtStatus* compute(void* kernel, OrtKernelContext* context) {
    Bound& bound = *static_cast<Bound*>(kernel);
    return guard(bound.api, [&] {
      const NodeIo io(bound.api, context);
      bound.kernel.enqueue(io, io.stream());
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

  ModelContext& context_;
};

}  // namespace pilotfish::cuda
