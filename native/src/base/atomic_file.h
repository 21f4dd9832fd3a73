// Files that are there whole or not at all, and that only their owner may read: they hold what an app's users wrote.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "base/platform/files.h"

namespace pilotfish {

// Replaces the file by `content`, so that a reader, or a crash in between, sees either the old file or the new one.
// Makes missing folders. The new file has the mode 0600, or what the old one's mode has of it. Of a link, the file that
// it leads to is replaced. Throws PF_FILE_MISSING with the system's reason, for a link that leads nowhere too, or where
// something else than a file is there.
void write_file(const std::filesystem::path& path, std::string_view content);
// Nothing if the file does not exist. Throws PF_FILE_MISSING if it does, but cannot be read, is no file, or has more
// than max_bytes.
std::optional<std::string> read_file(const std::filesystem::path& path, size_t max_bytes);

// A file on its way: written piece by piece beside the one whose place it takes. The same rules as write_file()'s, and
// its errors.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path);
  NewFile(NewFile&&) = delete;
  // Leaves nothing behind, where it has not taken its place.
  ~NewFile();

  void write(std::string_view content);
  void take_its_place();

 private:
  const std::filesystem::path path_;
  const std::filesystem::path temporary_;
  std::error_code error_;
  platform::File file_;
};

// A regular file, read from its beginning to its end.
class FileReader {
 public:
  // Throws PF_FILE_MISSING if it does not exist, cannot be read, or is no file.
  explicit FileReader(const std::filesystem::path& path);

  uint64_t num_bytes() const noexcept { return num_bytes_; }
  // Throws PF_FILE_MISSING where so many are not left.
  void read(std::span<std::byte> out);

 private:
  const std::filesystem::path path_;
  std::error_code error_;
  const platform::File file_;
  const uint64_t num_bytes_;
};

// Held while one process reads a file and writes it anew; the others wait. A file `path.lock` stays behind.
class FileLock {
 public:
  // Throws PF_FILE_MISSING where it cannot be had within seconds.
  explicit FileLock(const std::filesystem::path& path);
  FileLock(FileLock&&) = delete;

 private:
  const platform::File file_;
};

}  // namespace pilotfish
