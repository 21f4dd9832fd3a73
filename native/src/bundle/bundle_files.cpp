#include "bundle/bundle_files.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/platform/text.h"
#include "base/sha256.h"
#include "base/status.h"

namespace pilotfish {
namespace {

using platform::File;
using platform::text_of_path;
using FileType = std::filesystem::file_type;

void check(const std::error_code& error, const std::filesystem::path& path) {
  if (error) fail(PF_FILE_MISSING, text_of_path(path), ": ", error.message());
}

FileType type_at(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::symlink_status(path, error);
  check(error, path);
  return found.type();
}

// `folder` is without links.
bool may_link_to(const std::filesystem::path& folder, const std::filesystem::path& target) {
  if (target.parent_path() == folder) return true;
  for (std::filesystem::path at = folder; at.has_relative_path(); at = at.parent_path()) {
    if (at.filename() == "snapshots") return target.parent_path() == at.parent_path() / "blobs";
  }
  return false;
}

// Where the file is that the path names or links to.
std::filesystem::path resolve(const std::filesystem::path& path) {
  if (type_at(path) != FileType::symlink) return path;
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  check(error, path);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (!may_link_to(std::filesystem::canonical(folder), target)) {
    fail(PF_BUNDLE_CORRUPT, text_of_path(path), ": is a link to ", text_of_path(target),
         "; a bundle's files may link to files beside them and to the blobs of the hub cache that they are in");
  }
  return target;
}

void require_regular(const std::filesystem::path& path, FileType type) {
  if (type == FileType::regular) return;
  const char* const kind = type == FileType::directory ? "a folder"
                           : type == FileType::fifo    ? "a pipe"
                           : type == FileType::socket  ? "a socket"
                                                       : "a device";
  fail(PF_BUNDLE_CORRUPT, text_of_path(path), ": is ", kind, ", not a file");
}

File open_regular(const std::filesystem::path& path) {
  const std::filesystem::path target = resolve(path);
  require_regular(path, type_at(target));
  // Whatever takes its place meanwhile does not make this wait, and is seen afterwards.
  std::error_code error;
  File file = File::open_to_read(target, platform::Links::kRefused, error);
  check(error, path);
  return file;
}

uint64_t size_of(const std::filesystem::path& path, const File& file) {
  std::error_code error;
  const File::Facts found = file.facts(error);
  check(error, path);
  require_regular(path, found.type);
  return found.num_bytes;
}

}  // namespace

BundleFile::BundleFile(const std::filesystem::path& folder, const std::string& name)
    : path_(folder / platform::path_of_text(name)), file_(open_regular(path_)), num_bytes_(size_of(path_, file_)) {}

void BundleFile::read_exactly(std::byte* data, size_t num_bytes) const {
  std::error_code error;
  while (num_bytes > 0) {
    const size_t count = file_.read(data, num_bytes, error);
    check(error, path_);
    if (count == 0) {
      fail(PF_BUNDLE_CORRUPT, text_of_path(path_), ": ended ", num_bytes, " bytes early while being read");
    }
    data += count;
    num_bytes -= count;
  }
}

std::byte* BundleFile::map() const {
  std::error_code error;
  void* const bytes = file_.map(num_bytes_, error);
  check(error, path_);
  return static_cast<std::byte*>(bytes);
}

std::filesystem::path resolved_file(const std::filesystem::path& folder, const std::string& name) {
  return std::filesystem::canonical(resolve(folder / platform::path_of_text(name)));
}

void check_size(const BundleFile& file, const FileEntry& entry) {
  if (file.num_bytes() != entry.num_bytes) {
    fail(PF_BUNDLE_CORRUPT, text_of_path(file.path()), ": expected ", entry.num_bytes, " bytes, found ",
         file.num_bytes());
  }
}

void read_and_hash(const BundleFile& file, const FileEntry& entry, Hashes hashes,
                   const std::function<std::byte*(uint64_t)>& place) {
  Sha256 hash;
  for (uint64_t done = 0; done < entry.num_bytes;) {
    const size_t count = std::min<uint64_t>(kMostPieceBytes, entry.num_bytes - done);
    std::byte* const data = place(done);
    file.read_exactly(data, count);
    if (hashes == Hashes::kCompared) hash.update(data, count);
    done += count;
  }
  if (hashes == Hashes::kIgnored) return;
  const std::string found = hash.finish();
  if (found != entry.sha256) {
    fail(PF_BUNDLE_CORRUPT, text_of_path(file.path()), ": expected sha256 ", entry.sha256, ", found ", found);
  }
}

void check_file(const BundleSource& source, const FileEntry& entry) {
  const BundleFile file(source.folder, entry.file);
  check_size(file, entry);
  if (source.hashes == Hashes::kIgnored) return;
  std::vector<std::byte> buffer(std::min<uint64_t>(kMostPieceBytes, entry.num_bytes));
  read_and_hash(file, entry, source.hashes, [&](uint64_t) { return buffer.data(); });
}

std::string read_checked(const BundleSource& source, const FileEntry& entry, uint64_t most_bytes) {
  const BundleFile file(source.folder, entry.file);
  if (entry.num_bytes > most_bytes) {
    fail(PF_BUNDLE_CORRUPT, text_of_path(file.path()), ": has ", entry.num_bytes, " bytes, at most ", most_bytes,
         " are allowed");
  }
  check_size(file, entry);
  std::string content(entry.num_bytes, '\0');
  read_and_hash(file, entry, source.hashes,
                [&](uint64_t offset) { return reinterpret_cast<std::byte*>(content.data()) + offset; });
  return content;
}

}  // namespace pilotfish
