// The weights of a head, and sessions over them. What the graphs compute is the business of the drafters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "bundle/bundle_files.h"
#include "bundle/graph_places.h"
#include "bundle/manifest.h"
#include "bundle/weights_file.h"
#include "device/cuda_device.h"
#include "model/model.h"
#include "model/ort.h"
#include "model/session.h"
#include "model/weights.h"

namespace pilotfish {

// Of a head that has a decoder layer: its step as a model of one layer.
ModelEntry step_entry(const HeadEntry& head);

class Head {
 public:
  // Waits for the weights and reads the graphs. `target` has what they share and must outlive the head, which keeps
  // `ort` alive. `device` is the target's; nullptr on the CPU.
  Head(std::shared_ptr<const Ort> ort, std::shared_ptr<CudaDevice> device, const BundleSource& source,
       const HeadEntry& entry, std::unique_ptr<WeightsFile> weights, const Model& target, int32_t num_threads);
  Head(Head&&) = delete;

  const HeadEntry& entry() const noexcept { return entry_; }
  const std::shared_ptr<CudaDevice>& device() const noexcept { return device_; }
  // A session of the graph of that role. All read the same weights; the head must outlive them, and the target must not
  // have ended its load.
  std::unique_ptr<Session> open_session(std::string_view role, const CudaPassLimits& limits) const;
  // Frees what only loading needed, once all sessions are open.
  void end_load() {
    weights_.end_load();
    graphs_.clear();
  }

 private:
  const std::shared_ptr<const Ort> ort_;
  const std::shared_ptr<CudaDevice> device_;
  const std::filesystem::path folder_;
  const HeadEntry entry_;
  const int32_t num_threads_;
  const Model& target_;
  Weights weights_;
  std::map<std::string, PlacedGraph, std::less<>> graphs_;  // checked, by role
};

}  // namespace pilotfish
