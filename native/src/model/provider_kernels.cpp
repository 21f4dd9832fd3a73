#include "model/provider_kernels.h"

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/platform/text.h"
#include "base/status.h"
#include "bundle/graph_check.h"

namespace pilotfish {
namespace {

constexpr const char* kVariable = "PILOTFISH_CUDA_PROVIDER";

// An ONNX model of one node, y = Add(x, x) of f32 [1]: opset 18, the graph "g" and its ports.
constexpr std::string_view kProbe(
    "\x08\x0A"                                                 // ir_version 10
    "\x3A\x35"                                                 // graph, 53 bytes
    "\x0A\x0E\x0A\x01x\x0A\x01x\x12\x01y\x22\x03\x41\x64\x64"  // its node
    "\x12\x01g"
    "\x5A\x0F\x0A\x01x\x12\x0A\x0A\x08\x08\x01\x12\x04\x0A\x02\x08\x01"
    "\x62\x0F\x0A\x01y\x12\x0A\x0A\x08\x08\x01\x12\x04\x0A\x02\x08\x01"
    "\x42\x02\x10\x12",  // opset
    61);

// Of CUDA, where a library has no code for the device.
bool lacks_code(std::string_view message) noexcept {
  for (const std::string_view words : {"no kernel image", "device kernel image is invalid", "unsupported toolchain"}) {
    if (message.find(words) != std::string_view::npos) return true;
  }
  return false;
}

// Whether the probe's result is right: a kernel that was not launched may leave no error behind.
bool run_probe(const Ort& ort, int32_t device) {
  const OrtSessionOptionsPtr options = ort.cuda_session_options(device, nullptr, nullptr);
  const OrtSessionPtr session = ort.create_session({std::string(kProbe), "."}, options.get());
  const OrtIoBindingPtr binding = ort.create_binding(session.get());
  constexpr std::array<int64_t, 1> kShape{1};
  float x = 1.5f, y = 0.0f;
  const OrtValuePtr in = ort.tensor(&x, sizeof x, kShape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  const OrtValuePtr out = ort.tensor(&y, sizeof y, kShape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  ort.check(ort_abi::BindInput(ort.api(), binding.get(), "x", in.get()));
  ort.check(ort_abi::BindOutput(ort.api(), binding.get(), "y", out.get()));
  ort.check(ort_abi::RunWithBinding(ort.api(), session.get(), nullptr, binding.get()));
  return y == 3.0f;
}

}  // namespace

bool refuses_provider_kernels() {
  const char* const value = std::getenv(kVariable);
  if (!value) return false;
  if (std::string_view(value) != "none") {
    fail(PF_INVALID_ARGUMENT, kVariable, "=", value, ": it can be none, or not set");
  }
  return true;
}

bool provider_kernels_run(const Ort& ort, int32_t device) {
  if (refuses_provider_kernels()) return false;
  try {
    return run_probe(ort, device);
  } catch (const Error& error) {
    if (!lacks_code(error.what())) throw;
    return false;
  }
}

void check_provider_kernels(const Ort& ort, const CudaDevice& device, const PlacedGraph& graph,
                            const std::filesystem::path& file) {
  const std::string node = first_provider_node(graph.bytes);
  if (node.empty() || provider_kernels_run(ort, device.index())) return;
  const CudaDeviceInfo card = device.info();
  fail(PF_UNSUPPORTED, platform::text_of_path(file.filename()), ": ", node,
       " needs a CUDA kernel of ONNX Runtime itself, and ",
       refuses_provider_kernels() ? "PILOTFISH_CUDA_PROVIDER=none refuses these on" : "it has no code for",
       " cuda:", device.index(), ", ", card.name, " (compute capability ", card.compute_capability / 10, ".",
       card.compute_capability % 10,
       "); export the bundle again with this version of pilotfish, which needs none where a layer is fused whole, or "
       "use device cpu");
}

}  // namespace pilotfish
