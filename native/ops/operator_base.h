// What every operator tells ONNX Runtime about itself, whichever provider runs it. From a kernel class, which provides:
//   static constexpr const char* kName;
//   static constexpr std::array<InputSpec, n> kInputs;
//   static constexpr size_t kMostOutputs;                 (all f32; one, where it is not there)
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/ort_abi.h"

namespace pilotfish {

struct InputSpec {
  enum class Place { kProvider, kHost };  // where the data lie: kHost, although the provider's device is another

  ONNXTensorElementDataType type;  // UNDEFINED: the kernel checks it
  bool is_optional = false;
  Place place = Place::kProvider;
};

template <typename Kernel>
class OperatorBase : public OrtCustomOp {
 protected:
  // What is left to set: GetExecutionProviderType, CreateKernelV2, KernelComputeV2, KernelDestroy.
  OperatorBase() : OrtCustomOp{} {
    version = kOrtApiVersion;
    GetName = [](const OrtCustomOp*) { return Kernel::kName; };
    describe_inputs();
    describe_outputs();
    GetStartVersion = [](const OrtCustomOp*) { return 1; };
    GetEndVersion = [](const OrtCustomOp*) { return 1; };
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

 private:
  static constexpr size_t most_outputs() {
    if constexpr (requires { Kernel::kMostOutputs; }) return Kernel::kMostOutputs;
    return 1;
  }

  void describe_inputs() {
    GetInputTypeCount = [](const OrtCustomOp*) { return Kernel::kInputs.size(); };
    GetInputType = [](const OrtCustomOp*, size_t index) { return Kernel::kInputs[index].type; };
    GetInputCharacteristic = [](const OrtCustomOp*, size_t index) {
      return Kernel::kInputs[index].is_optional ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
    };
    GetInputMemoryType = [](const OrtCustomOp*, size_t index) {
      return Kernel::kInputs[index].place == InputSpec::Place::kHost ? OrtMemTypeCPUInput : OrtMemTypeDefault;
    };
    GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
    GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
  }

  void describe_outputs() {
    GetOutputTypeCount = [](const OrtCustomOp*) { return most_outputs(); };
    GetOutputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
    GetOutputCharacteristic = [](const OrtCustomOp*, size_t index) {
      return index == 0 ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
    };
    GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
    GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  }
};

}  // namespace pilotfish
