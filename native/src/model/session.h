// A graph of a bundle with tensors bound to its inputs and outputs, run by ONNX Runtime on the CPU or a CUDA device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bundle/graph_places.h"
#include "device/cuda_device.h"
#include "model/graph_ports.h"
#include "model/ort.h"
#include "model/recorded_passes.h"

namespace pilotfish {

class Session {
 public:
  struct Initializer {
    std::string name;
    const OrtValue* value;
  };
  struct Graph {
    std::filesystem::path file;
    const PlacedGraph& placed;  // its checked bytes
    std::vector<Initializer> initializers;
    int32_t num_threads;    // on the CPU
    CudaPassLimits limits;  // on a device, as are
    CudaWeights* repacked;  // the initializers there; they outlive the session
  };

  // Keeps `ort` alive, beside the other sessions. `device` is nullptr on the CPU.
  Session(std::shared_ptr<const Ort> ort, std::shared_ptr<CudaDevice> device, const Graph& graph);
  Session(Session&&) = delete;

  const Ort& ort() const noexcept { return *ort_; }
  const std::shared_ptr<CudaDevice>& device() const noexcept { return device_; }
  OrtIoBinding* binding() noexcept { return binding_.get(); }
  // What is bound is checked against these first.
  const GraphPorts& ports() const noexcept { return *ports_; }
  // A tensor over memory where the session runs.
  OrtValuePtr tensor(void* data, size_t num_bytes, std::span<const int64_t> shape,
                     ONNXTensorElementDataType type) const;

  // What passes from now on are told of their sequences (cuda_device.h: CudaOperators); nothing on the CPU.
  void bound_sequence_rows(int32_t most_rows) noexcept {
    if (operators_) operators_->bound_sequence_rows(most_rows);
  }
  // Runs over what is bound; on a device without waiting.
  void run();
  // The same. On a device a pass of few rows whose shape occurs often is repeated from a recording: the same must be
  // bound.
  void run(const PassShape& shape);

 private:
  const std::shared_ptr<const Ort> ort_;
  const std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<CudaOperators> operators_;
  OrtRunOptionsPtr run_options_;
  OrtSessionPtr session_;
  OrtIoBindingPtr binding_;
  std::optional<GraphPorts> ports_;
  RecordedPasses recorded_;
};

}  // namespace pilotfish
