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

[[noreturn]] void fail_to(const char* verb, const std::filesystem::path& path) {
  fail(PF_FILE_MISSING, path.string(), ": cannot be ", verb, ": ", std::strerror(errno));
}

class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path)
      : value_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (value_ < 0) fail_to("written", path);
  }
  Descriptor(Descriptor&&) = delete;
  ~Descriptor() { ::close(value_); }
  int get() const noexcept { return value_; }

 private:
  const int value_;
};

}  // namespace

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  std::filesystem::path temporary = path;
  temporary += ".new." + std::to_string(::getpid());
  {
    const Descriptor file(temporary);
    while (!content.empty()) {
      const ssize_t written = ::write(file.get(), content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_to("written", temporary);
      content.remove_prefix(written);
    }
    if (::fsync(file.get()) != 0) fail_to("written", temporary);
  }
  std::filesystem::rename(temporary, path, error);
  if (error) fail(PF_FILE_MISSING, path.string(), ": cannot be written: ", error.message());
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
