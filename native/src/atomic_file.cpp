#include "atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

#include "status.h"

namespace pilotfish {
namespace {

// A file beside another one, whose place it takes or which it leaves as it is.
class Successor {
 public:
  explicit Successor(const std::filesystem::path& path) : path_(path), temporary_(path) {
    temporary_ += ".new." + std::to_string(::getpid());
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail_to_write();
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
      if (written < 0) fail_to_write();
      content.remove_prefix(written);
    }
  }
  void take_its_place() {
    if (::fsync(descriptor_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) fail_to_write();
  }

 private:
  [[noreturn]] void fail_to_write() const {
    fail(PF_FILE_MISSING, path_.string(), ": cannot be written: ", std::strerror(errno));
  }

  const std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_;
};

}  // namespace

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  Successor file(path);
  file.write(content);
  file.take_its_place();
}

std::optional<std::string> read_file(const std::filesystem::path& path, size_t max_bytes) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const auto num_bytes = std::filesystem::file_size(path, error);
  if (error) fail(PF_FILE_MISSING, path.string(), ": cannot be read: ", error.message());
  if (num_bytes > max_bytes) {
    fail(PF_FILE_MISSING, path.string(), ": has ", num_bytes, " bytes, at most ", max_bytes, " are read");
  }
  std::ifstream file(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || file.bad()) fail(PF_FILE_MISSING, path.string(), ": cannot be read");
  return content;
}

}  // namespace pilotfish
