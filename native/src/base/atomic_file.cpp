#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/status.h"

namespace pilotfish {
namespace {

constexpr mode_t kMode = 0600;

[[noreturn]] void fail_to(const char* what, const std::filesystem::path& path) {
  fail(PF_FILE_MISSING, path.string(), ": cannot be ", what, ": ", std::strerror(errno));
}

// What a link leads to, or the path itself.
std::filesystem::path without_links(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) return path;
  std::filesystem::path target = std::filesystem::canonical(path, error);
  if (error) fail(PF_FILE_MISSING, path.string(), ": cannot be written: it is a link to nothing: ", error.message());
  return target;
}

void make_folders(const std::filesystem::path& path) {
  std::error_code error;  // whoever opens the file says why it cannot
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
}

// Of the file that is to take the place of the one at `path`.
mode_t next_mode(const std::filesystem::path& path) {
  struct stat found;
  if (::lstat(path.c_str(), &found) != 0) return kMode;
  if (!S_ISREG(found.st_mode)) fail(PF_FILE_MISSING, path.string(), ": cannot be written: it is no file");
  return found.st_mode & kMode;
}

// A file beside another one, whose place it takes or which it leaves as it is.
class Successor {
 public:
  explicit Successor(const std::filesystem::path& path) : path_(path), temporary_(path) {
    static std::atomic<unsigned> count = 0;  // threads may write the same file
    const mode_t mode = next_mode(path_);
    temporary_ += ".new." + std::to_string(::getpid()) + "." + std::to_string(++count);
    ::unlink(temporary_.c_str());  // of a process that was killed
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode);
    if (descriptor_ < 0) fail_to("written", path_);
    ::fchmod(descriptor_, mode);
  }
  Successor(Successor&&) = delete;
  ~Successor() {
    ::close(descriptor_);
    ::unlink(temporary_.c_str());  // where it did not take its place
  }

  void write(std::string_view content) {
    while (!content.empty()) {
      const ssize_t written = ::write(descriptor_, content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_to("written", path_);
      content.remove_prefix(written);
    }
  }
  void take_its_place() {
    if (::fsync(descriptor_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) fail_to("written", path_);
  }

 private:
  const std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_;
};

// Owns a descriptor that is read from.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&&) = delete;
  ~Descriptor() { ::close(value_); }
  int value() const noexcept { return value_; }

 private:
  const int value_;
};

std::string read_all(const Descriptor& file, const std::filesystem::path& path, size_t num_bytes) {
  std::string content(num_bytes, '\0');
  for (size_t done = 0; done < num_bytes;) {
    const ssize_t count = ::read(file.value(), content.data() + done, num_bytes - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_to("read", path);
    if (count == 0) fail(PF_FILE_MISSING, path.string(), ": cannot be read: it ended while being read");
    done += count;
  }
  return content;
}

}  // namespace

void write_file(const std::filesystem::path& path, std::string_view content) {
  make_folders(path);
  Successor file(without_links(path));
  file.write(content);
  file.take_its_place();
}

std::optional<std::string> read_file(const std::filesystem::path& path, size_t max_bytes) {
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (opened < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (opened < 0) fail_to("read", path);
  const Descriptor file(opened);
  struct stat found;
  if (::fstat(opened, &found) != 0) fail_to("read", path);
  if (!S_ISREG(found.st_mode)) fail(PF_FILE_MISSING, path.string(), ": cannot be read: it is no file");
  const auto num_bytes = static_cast<size_t>(found.st_size);
  if (num_bytes > max_bytes) {
    fail(PF_FILE_MISSING, path.string(), ": has ", num_bytes, " bytes, at most ", max_bytes, " are read");
  }
  return read_all(file, path, num_bytes);
}

FileLock::FileLock(const std::filesystem::path& path) {
  constexpr auto kPatience = std::chrono::seconds(5);
  make_folders(path);
  std::filesystem::path name = without_links(path);
  name += ".lock";
  descriptor_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kMode);
  if (descriptor_ < 0) fail_to("written", name);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= end) {
      ::close(descriptor_);
      fail(PF_FILE_MISSING, name.string(), ": is held by another process, which does not let go of it");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

FileLock::~FileLock() { ::close(descriptor_); }

}  // namespace pilotfish
