#include "bundle/weights_file.h"

#include <chrono>
#include <utility>
#include <vector>

namespace pilotfish {
namespace {

constexpr std::chrono::milliseconds kWaitingStep{50};

struct Stopped {};  // by the destructor, which asks for no reason

std::unique_ptr<WeightBytes> room_for(const BundleFile& file, const FileEntry& entry,
                                      std::span<const FileRange> mapped) {
  check_size(file, entry);  // before memory is taken for it
  return std::make_unique<WeightBytes>(file, entry.num_bytes, mapped);
}

}  // namespace

WeightsFile::WeightsFile(const BundleSource& source, const FileEntry& entry, std::atomic<uint64_t>& num_read,
                         std::span<const FileRange> mapped)
    : while_waiting_(source.while_waiting),
      file_(source.folder, entry.file),
      bytes_(room_for(file_, entry, mapped)),
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
  std::byte* const in_place = bytes_->in_place();
  std::vector<std::byte> piece(in_place ? 0 : kMostPieceBytes);
  const auto keep_until = [&](uint64_t offset) {
    const size_t num_bytes = offset - std::exchange(begun, offset);
    if (!in_place) bytes_->keep(offset - num_bytes, std::span(piece).first(num_bytes));
    num_read.fetch_add(num_bytes, std::memory_order_relaxed);
  };
  read_and_hash(file_, entry, hashes, [&](uint64_t offset) {
    if (is_stopped_.load(std::memory_order_relaxed)) throw Stopped();
    keep_until(offset);
    return in_place ? in_place + offset : piece.data();
  });
  keep_until(entry.num_bytes);
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
