// A weights file on its way into memory: a thread reads and hashes it, while whoever loads the bundle goes on to what
// does not look at the weights.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "base/pages.h"
#include "bundle/bundle_files.h"
#include "bundle/manifest.h"

namespace pilotfish {

class WeightsFile {
 public:
  // Opens the file, takes the memory and begins; `num_read` grows by the bytes that have come, and outlives this.
  // Throws what BundleFile and check_size() throw, and PF_OUT_OF_MEMORY.
  WeightsFile(const BundleSource& source, const FileEntry& entry, std::atomic<uint64_t>& num_read);
  WeightsFile(WeightsFile&&) = delete;
  // Ends the reading where it is.
  ~WeightsFile();

  // Where the bytes will be. Nobody may look at them before wait() has returned.
  std::byte* data() const noexcept { return pages_.data(); }
  // Returns once all bytes are there and their hash is the manifest's. Throws PF_BUNDLE_CORRUPT where the file is
  // another one or has become shorter, PF_FILE_MISSING where it cannot be read, and what the source's while_waiting
  // throws.
  void wait();
  // The bytes, at the same address, after wait().
  Pages take() noexcept { return std::move(pages_); }

 private:
  void read(const FileEntry& entry, Hashes hashes, std::atomic<uint64_t>& num_read);
  void finish(std::exception_ptr error) noexcept;

  const std::function<void()> while_waiting_;
  const BundleFile file_;
  Pages pages_;
  std::atomic<bool> is_stopped_{false};
  std::mutex mutex_;
  std::condition_variable finished_;
  bool is_finished_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace pilotfish
