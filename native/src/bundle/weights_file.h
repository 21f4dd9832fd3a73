// A weights file on its way into memory: a thread reads and hashes it, while whoever loads the bundle goes on to what
// does not look at the weights.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "bundle/bundle_files.h"
#include "bundle/manifest.h"
#include "bundle/weight_bytes.h"

namespace pilotfish {

class WeightsFile {
 public:
  // Opens the file, takes memory for all but `mapped` and begins; `num_read` grows by the bytes that have come, and
  // outlives this. Throws what BundleFile, check_size() and WeightBytes throw.
  WeightsFile(const BundleSource& source, const FileEntry& entry, std::atomic<uint64_t>& num_read,
              std::span<const FileRange> mapped = {});
  WeightsFile(WeightsFile&&) = delete;
  // Ends the reading where it is.
  ~WeightsFile();

  // Where a tensor's bytes will be. Nobody may look at them before wait() has returned.
  std::byte* at(const TensorEntry& tensor) const noexcept { return bytes_->at({tensor.offset, tensor.num_bytes}); }
  // Returns once all bytes are there and their hash is the manifest's. Throws PF_BUNDLE_CORRUPT where the file is
  // another one or has become shorter, PF_FILE_MISSING where it cannot be read, and what the source's while_waiting
  // throws.
  void wait();
  // The bytes, at the same addresses, after wait().
  std::unique_ptr<WeightBytes> take() noexcept { return std::move(bytes_); }

 private:
  void read(const FileEntry& entry, Hashes hashes, std::atomic<uint64_t>& num_read);
  void finish(std::exception_ptr error) noexcept;

  const std::function<void()> while_waiting_;
  const BundleFile file_;
  std::unique_ptr<WeightBytes> bytes_;
  std::atomic<bool> is_stopped_{false};
  std::mutex mutex_;
  std::condition_variable finished_;
  bool is_finished_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace pilotfish
