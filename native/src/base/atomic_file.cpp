#include "base/atomic_file.h"

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>

#include "base/platform/text.h"
#include "base/status.h"

namespace pilotfish {
namespace {

using platform::File;
using platform::text_of_path;

void check(const std::error_code& error, const char* what, const std::filesystem::path& path) {
  if (error) fail(PF_FILE_MISSING, text_of_path(path), ": cannot be ", what, ": ", error.message());
}

// What a link leads to, or the path itself.
std::filesystem::path without_links(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) return path;
  std::filesystem::path target = std::filesystem::canonical(path, error);
  check(error, "written: it is a link to nothing", path);
  return target;
}

void make_folders(const std::filesystem::path& path) {
  std::error_code error;  // whoever opens the file says why it cannot
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
}

// Where a file takes the place of something else than a file, or of nothing that it may.
void require_replaceable(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(found) || std::filesystem::is_regular_file(found)) return;
  fail(PF_FILE_MISSING, text_of_path(path), ": cannot be written: it is no file");
}

std::filesystem::path successor_of(const std::filesystem::path& path) {
  static std::atomic<unsigned> count = 0;  // threads may write the same file
  std::filesystem::path successor = path;
  successor += ".new." + std::to_string(platform::process_id()) + "." + std::to_string(++count);
  std::error_code error;
  std::filesystem::remove(successor, error);  // of a process that was killed
  return successor;
}

// The file that is to be written for a path.
std::filesystem::path place_of(const std::filesystem::path& path) {
  make_folders(path);
  std::filesystem::path target = without_links(path);
  require_replaceable(target);
  return target;
}

File open_file(const std::filesystem::path& path, std::error_code& error) {
  File file = File::open_to_read(path, platform::Links::kFollowed, error);
  check(error, "read", path);
  return file;
}

uint64_t bytes_of(const File& file, const std::filesystem::path& path) {
  std::error_code error;
  const File::Facts found = file.facts(error);
  check(error, "read", path);
  if (found.type != std::filesystem::file_type::regular) {
    fail(PF_FILE_MISSING, text_of_path(path), ": cannot be read: it is no file");
  }
  return found.num_bytes;
}

void read_exactly(const File& file, const std::filesystem::path& path, std::span<std::byte> out) {
  std::error_code error;
  while (!out.empty()) {
    const size_t count = file.read(out.data(), out.size(), error);
    check(error, "read", path);
    if (count == 0) fail(PF_FILE_MISSING, text_of_path(path), ": cannot be read: it ended while being read");
    out = out.subspan(count);
  }
}

std::filesystem::path lock_of(const std::filesystem::path& path) {
  make_folders(path);
  std::filesystem::path name = without_links(path);
  return name += ".lock";
}

File open_lock(const std::filesystem::path& name) {
  constexpr auto kPatience = std::chrono::seconds(5);
  std::error_code error;
  File file = File::open_to_lock(name, error);
  check(error, "written", name);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!file.try_lock()) {
    if (std::chrono::steady_clock::now() >= end) {
      fail(PF_FILE_MISSING, text_of_path(name), ": is held by another process, which does not let go of it");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return file;
}

}  // namespace

NewFile::NewFile(const std::filesystem::path& path)
    : path_(place_of(path)), temporary_(successor_of(path_)), file_(File::create_private(temporary_, path_, error_)) {
  check(error_, "written", path_);
}

NewFile::~NewFile() {
  file_.close();
  std::filesystem::remove(temporary_, error_);  // where it did not take its place
}

void NewFile::write(std::string_view content) {
  while (!content.empty()) {
    content.remove_prefix(file_.write(content.data(), content.size(), error_));
    check(error_, "written", path_);
  }
}

void NewFile::take_its_place() {
  file_.sync(error_);
  check(error_, "written", path_);
  file_.close();
  platform::replace_file(temporary_, path_, error_);
  check(error_, "written", path_);
}

FileReader::FileReader(const std::filesystem::path& path)
    : path_(path), file_(open_file(path, error_)), num_bytes_(bytes_of(file_, path)) {}

void FileReader::read(std::span<std::byte> out) { read_exactly(file_, path_, out); }

void write_file(const std::filesystem::path& path, std::string_view content) {
  NewFile file(path);
  file.write(content);
  file.take_its_place();
}

std::optional<std::string> read_file(const std::filesystem::path& path, size_t max_bytes) {
  std::error_code error;
  const File file = File::open_to_read(path, platform::Links::kFollowed, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) return std::nullopt;
  check(error, "read", path);
  const uint64_t num_bytes = bytes_of(file, path);
  if (num_bytes > max_bytes) {
    fail(PF_FILE_MISSING, text_of_path(path), ": has ", num_bytes, " bytes, at most ", max_bytes, " are read");
  }
  std::string content(num_bytes, '\0');
  read_exactly(file, path, std::as_writable_bytes(std::span(content)));
  return content;
}

FileLock::FileLock(const std::filesystem::path& path) : file_(open_lock(lock_of(path))) {}

}  // namespace pilotfish
