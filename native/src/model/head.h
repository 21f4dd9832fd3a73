// The weights of a head, and sessions over them. What the graphs compute is the business of the drafters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bundle/manifest.h"
#include "memory/pages.h"
#include "model/model.h"
#include "model/ort.h"

namespace pilotfish {

class Head {
 public:
  // Reads and hashes the weights and the graphs. `target` has what they share and must outlive the head, which keeps
  // `ort` alive.
  Head(std::shared_ptr<const Ort> ort, const std::filesystem::path& folder, const HeadEntry& entry, const Model& target,
       int32_t num_threads);
  Head(Head&&) = delete;

  const HeadEntry& entry() const noexcept { return entry_; }
  const Ort& ort() const noexcept { return *ort_; }
  // A session of the graph of that role, on the CPU. All read the same weights; the head must outlive them.
  OrtSessionPtr open_session(std::string_view role) const;

 private:
  std::shared_ptr<const Ort> ort_;
  const std::filesystem::path folder_;
  const HeadEntry entry_;
  const int32_t num_threads_;
  const Pages weights_;
  const Model& target_;
  std::vector<OrtValuePtr> initializers_;  // of entry_.tensors
};

}  // namespace pilotfish
