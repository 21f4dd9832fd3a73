// The tensors of a weights file as sessions get them. On the CPU they lie in memory, or in the mapped file, and
// sessions may be made while they are still being read; on a CUDA device those of f32 are copied there, and packed ones
// wait in host memory until the operators of a session have repacked them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/manifest.h"
#include "bundle/weight_bytes.h"
#include "bundle/weights_file.h"
#include "device/cuda_device.h"
#include "memory/weight_streaming.h"
#include "model/ort.h"

namespace pilotfish {

class Weights {
 public:
  struct Content {
    std::unique_ptr<WeightsFile> file;
    std::span<const TensorEntry> tensors;
    uint64_t repacked_bytes;       // that stay on a device, at most
    StreamedChoice streamed = {};  // that stay in host memory, on a device
  };

  // Waits for the file on a device alone. `device` is nullptr on the CPU. Tensors of `lender` that the same sessions
  // read are not repacked again; it must outlive these weights, and not have ended its load before they have. nullptr:
  // none.
  Weights(const Ort& ort, std::shared_ptr<CudaDevice> device, Content content, const Weights* lender);
  Weights(Weights&&) = delete;

  // Returns once the file was read and checked, and throws what WeightsFile::wait() throws. No session may run before.
  void wait();

  // By its name in the manifest, which must be there.
  const OrtValue* find(std::string_view name) const { return tensors_.find(name)->second.get(); }
  const std::map<std::string, OrtValuePtr, std::less<>>& tensors() const noexcept { return tensors_; }
  // nullptr on the CPU.
  CudaWeights* repacked() const noexcept { return repacked_.get(); }
  // Frees what a device has copies of. Call it once all sessions exist that read it.
  void end_load();

 private:
  OrtValuePtr tensor(const Ort& ort, const TensorEntry& entry, std::byte* data);

  const std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<WeightsFile> file_;   // until wait() returns
  std::unique_ptr<WeightBytes> bytes_;  // from then on
  std::unique_ptr<CudaWeights> repacked_;
  std::vector<CudaMemory> device_tensors_;
  std::map<std::string, OrtValuePtr, std::less<>> tensors_;
};

}  // namespace pilotfish
