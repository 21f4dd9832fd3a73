// Files that are there whole or not at all, and that only their owner may read: they hold what an app's users wrote.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

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
