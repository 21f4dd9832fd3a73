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

namespace pilotfish {

// What decides which kernels a pass consists of, and over which memory.
struct PassShape {
  int32_t num_rows;
  int32_t num_outputs = 0;
  int32_t num_hidden = 0;
  bool is_causal = true;
  int32_t num_seqs = 1;
  int32_t sequence_rows = 0;  // that none of several sequences has more of; 0: it is not known

  bool operator==(const PassShape&) const = default;
};

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
  // The same. On a device a pass of few rows whose shape occurs again is repeated from a recording: the same must be
  // bound.
  void run(const PassShape& shape);

 private:
  // A pass of few rows that was recorded on the device.
  struct Recorded {
    PassShape shape;
    std::unique_ptr<CudaGraph> graph;  // nullptr until its second time
  };

  const std::shared_ptr<const Ort> ort_;
  const std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<CudaOperators> operators_;
  OrtRunOptionsPtr run_options_;
  OrtSessionPtr session_;
  OrtIoBindingPtr binding_;
  std::optional<GraphPorts> ports_;
  std::vector<Recorded> recorded_;  // the one that was used last is the last one
};

}  // namespace pilotfish
