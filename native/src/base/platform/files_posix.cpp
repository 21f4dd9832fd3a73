#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/platform/files.h"
#include "base/platform/text.h"

namespace pilotfish::platform {
namespace {

constexpr mode_t kMode = 0600;

std::error_code last_error() { return {errno, std::generic_category()}; }

std::filesystem::file_type type_of(mode_t mode) {
  using Type = std::filesystem::file_type;
  if (S_ISREG(mode)) return Type::regular;
  if (S_ISDIR(mode)) return Type::directory;
  if (S_ISFIFO(mode)) return Type::fifo;
  if (S_ISSOCK(mode)) return Type::socket;
  return S_ISBLK(mode) ? Type::block : Type::character;
}

int open_file(const std::filesystem::path& path, int flags, std::error_code& error) {
  error.clear();
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, kMode);
  if (descriptor < 0) error = last_error();
  return descriptor;
}

// Of a call that is repeated where a signal interrupted it.
template <typename Call>
size_t transfer(const Call& call, std::error_code& error) {
  error.clear();
  while (true) {
    const ssize_t count = call();
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EINTR) continue;
    error = last_error();
    return 0;
  }
}

}  // namespace

File File::open_to_read(const std::filesystem::path& path, Links links, std::error_code& error) {
  return File(open_file(path, O_RDONLY | O_NONBLOCK | (links == Links::kRefused ? O_NOFOLLOW : 0), error));
}

File File::create_private(const std::filesystem::path& path, const std::filesystem::path& like,
                          std::error_code& error) {
  struct stat found;
  const mode_t mode = ::stat(like.c_str(), &found) == 0 ? found.st_mode & kMode : kMode;
  const int descriptor = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, error);
  if (descriptor >= 0) ::fchmod(descriptor, mode);
  return File(descriptor);
}

File File::open_to_lock(const std::filesystem::path& path, std::error_code& error) {
  return File(open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, error));
}

File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

File::~File() { close(); }

void File::close() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

File::Facts File::facts(std::error_code& error) const {
  error.clear();
  struct stat found;
  if (::fstat(descriptor_, &found) == 0) return {type_of(found.st_mode), static_cast<uint64_t>(found.st_size)};
  error = last_error();
  return {std::filesystem::file_type::unknown, 0};
}

size_t File::read(void* data, size_t num_bytes, std::error_code& error) const {
  return transfer([&] { return ::read(descriptor_, data, num_bytes); }, error);
}

size_t File::write(const void* data, size_t num_bytes, std::error_code& error) const {
  return transfer([&] { return ::write(descriptor_, data, num_bytes); }, error);
}

void* File::map(size_t num_bytes, std::error_code& error) const {
  error.clear();
  void* const bytes = ::mmap(nullptr, num_bytes, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (bytes != MAP_FAILED) return bytes;
  error = last_error();
  return nullptr;
}

void File::sync(std::error_code& error) const {
  error.clear();
  if (::fsync(descriptor_) != 0) error = last_error();
}

bool File::try_lock() const noexcept { return ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0; }

void replace_file(const std::filesystem::path& from, const std::filesystem::path& to, std::error_code& error) {
  error.clear();
  if (::rename(from.c_str(), to.c_str()) != 0) error = last_error();
}

uint64_t process_id() noexcept { return static_cast<uint64_t>(::getpid()); }

void set_default_variable(const char* name, const char* value) { ::setenv(name, value, 0); }

std::filesystem::path path_of_text(std::string_view text) { return text; }

std::string text_of_path(const std::filesystem::path& path) { return path.string(); }

}  // namespace pilotfish::platform
