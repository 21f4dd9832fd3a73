#include "bundle/weights_file.h"

#include <chrono>
#include <utility>

namespace pilotfish {
namespace {

constexpr std::chrono::milliseconds kWaitingStep{50};

struct Stopped {};  // by the destructor, which asks for no reason

Pages pages_of(const BundleFile& file, const FileEntry& entry) {
  check_size(file, entry);  // before memory is taken for it
  return {entry.num_bytes, Pages::Size::kHuge};
}

}  // namespace

WeightsFile::WeightsFile(const BundleSource& source, const FileEntry& entry, std::atomic<uint64_t>& num_read)
    : while_waiting_(source.while_waiting),
      file_(source.folder, entry.file),
      pages_(pages_of(file_, entry)),
      thread_([this, entry, hashes = source.hashes, &num_read] {
        try {
          read(entry, hashes, num_read);
          finish(nullptr);
        } catch (...) {
          finish(std::current_exception());
        }
      }) {}

WeightsFile::~WeightsFile() {
  is_stopped_ = true;
  thread_.join();
}

void WeightsFile::read(const FileEntry& entry, Hashes hashes, std::atomic<uint64_t>& num_read) {
  uint64_t begun = 0;  // pieces before it have come
  read_and_hash(file_, entry, hashes, [&](uint64_t offset) {
    if (is_stopped_.load(std::memory_order_relaxed)) throw Stopped();
    num_read.fetch_add(offset - std::exchange(begun, offset), std::memory_order_relaxed);
    return pages_.data() + offset;
  });
  num_read.fetch_add(entry.num_bytes - begun, std::memory_order_relaxed);
}

void WeightsFile::finish(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  is_finished_ = true;
  finished_.notify_all();
}

void WeightsFile::wait() {
  std::unique_lock lock(mutex_);
  while (!finished_.wait_for(lock, kWaitingStep, [this] { return is_finished_; })) {
    lock.unlock();
    while_waiting_();
    lock.lock();
  }
  if (error_) std::rethrow_exception(error_);
}

}  // namespace pilotfish
