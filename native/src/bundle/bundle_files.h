// The files of a bundle, read and checked against the manifest's sizes and hashes.
//
// A file of a bundle is a regular file in its folder. It may be a link to a file beside it or, where the folder is
// below `snapshots` of a hub's cache, in the folder `blobs` beside `snapshots`; other links, pipes, sockets and devices
// are refused before they are opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/platform/files.h"
#include "bundle/manifest.h"

namespace pilotfish {

class BundleFile {
 public:
  // Throws PF_FILE_MISSING, or PF_BUNDLE_CORRUPT where it is no file of the bundle. `name` is a name, not a path.
  BundleFile(const std::filesystem::path& folder, const std::string& name);
  BundleFile(BundleFile&&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  uint64_t num_bytes() const noexcept { return num_bytes_; }
  // Reads num_bytes, unless the file ends or cannot be read.
  void read_exactly(std::byte* data, size_t num_bytes) const;
  // All of it as memory to be read (platform::File::map), which platform::unmap_file() ends. Throws PF_FILE_MISSING.
  std::byte* map() const;

 private:
  const std::filesystem::path path_;
  const platform::File file_;
  const uint64_t num_bytes_;
};

// Where the file of that name is, its links followed: an absolute path. Throws what BundleFile throws.
std::filesystem::path resolved_file(const std::filesystem::path& folder, const std::string& name);
// Whether a file's hash is compared with the manifest's. Its size always is.
enum class Hashes { kCompared, kIgnored };

// How a bundle's files are read.
struct BundleSource {
  std::filesystem::path folder;
  Hashes hashes = Hashes::kCompared;
  std::function<void()> while_waiting = [] {};  // called now and then while a file is waited for; may throw to end it
};

// Throws PF_BUNDLE_CORRUPT with the expected and the found size.
void check_size(const BundleFile& file, const FileEntry& entry);
// Still in the second-level cache when it is hashed.
inline constexpr size_t kMostPieceBytes = size_t{1} << 20;
// Reads the file, which has the entry's size, in pieces of at most kMostPieceBytes: `place` says where the one that
// begins at an offset goes, and may throw to end the reading. Throws PF_BUNDLE_CORRUPT with the expected and the found
// hash.
void read_and_hash(const BundleFile& file, const FileEntry& entry, Hashes hashes,
                   const std::function<std::byte*(uint64_t offset)>& place);
// Compares a file with its entry. Throws what BundleFile and the two above throw; so do the others.
void check_file(const BundleSource& source, const FileEntry& entry);
// Its content, which may have at most most_bytes.
std::string read_checked(const BundleSource& source, const FileEntry& entry, uint64_t most_bytes);

}  // namespace pilotfish
