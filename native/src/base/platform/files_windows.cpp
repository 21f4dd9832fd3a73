// The C library's descriptors, in binary mode: its text mode would change line ends and stop at Ctrl-Z.
#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>
#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <utility>

#include "base/platform/files.h"
#include "base/platform/text.h"

namespace pilotfish::platform {
namespace {

std::error_code last_error() { return {errno, std::generic_category()}; }

int open_file(const std::filesystem::path& path, int flags, std::error_code& error) {
  error.clear();
  const int descriptor = _wopen(path.c_str(), flags | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
  if (descriptor < 0) error = last_error();
  return descriptor;
}

unsigned piece_of(size_t num_bytes) { return static_cast<unsigned>(std::min<size_t>(num_bytes, INT_MAX)); }

}  // namespace

File File::open_to_read(const std::filesystem::path& path, Links links, std::error_code& error) {
  if (links == Links::kRefused && std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) {
    error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
    return File(-1);
  }
  return File(open_file(path, _O_RDONLY, error));
}

// Rights are those of the folder: a user's own folders are his alone.
File File::create_private(const std::filesystem::path& path, const std::filesystem::path&, std::error_code& error) {
  return File(open_file(path, _O_WRONLY | _O_CREAT | _O_EXCL, error));
}

File File::open_to_lock(const std::filesystem::path& path, std::error_code& error) {
  return File(open_file(path, _O_RDWR | _O_CREAT, error));
}

File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

File::~File() { close(); }

void File::close() noexcept {
  if (descriptor_ >= 0) _close(std::exchange(descriptor_, -1));
}

File::Facts File::facts(std::error_code& error) const {
  error.clear();
  struct _stat64 found;
  if (_fstat64(descriptor_, &found) != 0) {
    error = last_error();
    return {std::filesystem::file_type::unknown, 0};
  }
  const bool is_regular = (found.st_mode & _S_IFMT) == _S_IFREG;
  return {is_regular ? std::filesystem::file_type::regular : std::filesystem::file_type::character,
          static_cast<uint64_t>(found.st_size)};
}

size_t File::read(void* data, size_t num_bytes, std::error_code& error) const {
  error.clear();
  const int count = _read(descriptor_, data, piece_of(num_bytes));
  if (count < 0) error = last_error();
  return static_cast<size_t>(std::max(count, 0));
}

size_t File::write(const void* data, size_t num_bytes, std::error_code& error) const {
  error.clear();
  const int count = _write(descriptor_, data, piece_of(num_bytes));
  if (count < 0) error = last_error();
  return static_cast<size_t>(std::max(count, 0));
}

void* File::map(size_t num_bytes, std::error_code& error) const {
  error.clear();
  const auto file = reinterpret_cast<HANDLE>(_get_osfhandle(descriptor_));
  const HANDLE mapping = CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr);
  void* const bytes = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, num_bytes) : nullptr;
  if (!bytes) error = {static_cast<int>(GetLastError()), std::system_category()};
  if (mapping) CloseHandle(mapping);  // the view keeps it
  return bytes;
}

void File::sync(std::error_code& error) const {
  error.clear();
  if (_commit(descriptor_) != 0) error = last_error();
}

bool File::try_lock() const noexcept {
  OVERLAPPED whole{};
  const auto handle = reinterpret_cast<HANDLE>(_get_osfhandle(descriptor_));
  return LockFileEx(handle, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, MAXDWORD, MAXDWORD, &whole) != 0;
}

void replace_file(const std::filesystem::path& from, const std::filesystem::path& to, std::error_code& error) {
  error.clear();
  if (!MoveFileExW(from.c_str(), to.c_str(), MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) {
    error = {static_cast<int>(GetLastError()), std::system_category()};
  }
}

uint64_t process_id() noexcept { return GetCurrentProcessId(); }

// For other libraries too: those with a C library of their own ask the system.
void set_default_variable(const char* name, const char* value) {
  if (std::getenv(name) != nullptr) return;
  _putenv_s(name, value);
  SetEnvironmentVariableA(name, value);
}

std::filesystem::path path_of_text(std::string_view text) {
  return std::u8string(reinterpret_cast<const char8_t*>(text.data()), text.size());
}

std::string text_of_path(const std::filesystem::path& path) {
  const std::u8string text = path.u8string();
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

}  // namespace pilotfish::platform
