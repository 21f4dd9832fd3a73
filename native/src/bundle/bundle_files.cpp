#include "bundle/bundle_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"

namespace pilotfish {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;  // still in the second-level cache when it is hashed

[[noreturn]] void fail_with_errno(const std::filesystem::path& path) {
  fail(PF_FILE_MISSING, path.string(), ": ", std::strerror(errno));
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
  struct stat found;
  if (::lstat(path.c_str(), &found) != 0) fail_with_errno(path);
  if (!S_ISLNK(found.st_mode)) return path;
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  if (error) fail(PF_FILE_MISSING, path.string(), ": ", error.message());
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (!may_link_to(std::filesystem::canonical(folder), target)) {
    fail(PF_BUNDLE_CORRUPT, path.string(), ": is a link to ", target.string(),
         "; a bundle's files may link to files beside them and to the blobs of the hub cache that they are in");
  }
  return target;
}

void require_regular(const std::filesystem::path& path, const struct stat& found) {
  if (S_ISREG(found.st_mode)) return;
  const char* const kind = S_ISDIR(found.st_mode)    ? "a folder"
                           : S_ISFIFO(found.st_mode) ? "a pipe"
                           : S_ISSOCK(found.st_mode) ? "a socket"
                                                     : "a device";
  fail(PF_BUNDLE_CORRUPT, path.string(), ": is ", kind, ", not a file");
}

int open_regular(const std::filesystem::path& path) {
  const std::filesystem::path target = resolve(path);
  struct stat found;
  if (::lstat(target.c_str(), &found) != 0) fail_with_errno(path);
  require_regular(path, found);
  // Whatever takes its place meanwhile does not make this wait, and is seen afterwards.
  const int descriptor = ::open(target.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (descriptor < 0) fail_with_errno(path);
  return descriptor;
}

uint64_t size_of(const std::filesystem::path& path, int descriptor) {
  struct stat found;
  if (::fstat(descriptor, &found) != 0) fail_with_errno(path);
  require_regular(path, found);
  return static_cast<uint64_t>(found.st_size);
}

void check_size(const BundleFile& file, const FileEntry& entry) {
  if (file.num_bytes() != entry.num_bytes) {
    fail(PF_BUNDLE_CORRUPT, file.path().string(), ": expected ", entry.num_bytes, " bytes, found ", file.num_bytes());
  }
}

// Reads the file piece by piece, each to where `place` says for its offset and size, and compares its hash.
template <typename Place>
void read_and_hash(const BundleFile& file, const FileEntry& entry, const Place& place) {
  check_size(file, entry);
  Sha256 hash;
  for (uint64_t done = 0; done < entry.num_bytes;) {
    const size_t count = std::min<uint64_t>(kReadBytes, entry.num_bytes - done);
    std::byte* const data = place(done);
    file.read_exactly(data, count);
    hash.update(data, count);
    done += count;
  }
  const std::string found = hash.finish();
  if (found != entry.sha256) {
    fail(PF_BUNDLE_CORRUPT, file.path().string(), ": expected sha256 ", entry.sha256, ", found ", found);
  }
}

}  // namespace

BundleFile::BundleFile(const std::filesystem::path& folder, const std::string& name)
    : path_(folder / name), descriptor_(open_regular(path_)), num_bytes_(0) {
  try {
    num_bytes_ = size_of(path_, descriptor_);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

BundleFile::~BundleFile() { ::close(descriptor_); }

void BundleFile::read_exactly(std::byte* data, size_t num_bytes) const {
  while (num_bytes > 0) {
    const ssize_t count = ::read(descriptor_, data, num_bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_with_errno(path_);
    if (count == 0) fail(PF_BUNDLE_CORRUPT, path_.string(), ": ended ", num_bytes, " bytes early while being read");
    data += count;
    num_bytes -= count;
  }
}

std::filesystem::path resolved_file(const std::filesystem::path& folder, const std::string& name) {
  return std::filesystem::canonical(resolve(folder / name));
}

void check_file(const std::filesystem::path& folder, const FileEntry& entry) {
  const BundleFile file(folder, entry.file);
  std::vector<std::byte> buffer(std::min<uint64_t>(kReadBytes, entry.num_bytes));
  read_and_hash(file, entry, [&](uint64_t) { return buffer.data(); });
}

std::string read_checked(const std::filesystem::path& folder, const FileEntry& entry, uint64_t most_bytes) {
  const BundleFile file(folder, entry.file);
  if (entry.num_bytes > most_bytes) {
    fail(PF_BUNDLE_CORRUPT, file.path().string(), ": has ", entry.num_bytes, " bytes, at most ", most_bytes,
         " are allowed");
  }
  check_size(file, entry);
  std::string content(entry.num_bytes, '\0');
  read_and_hash(file, entry, [&](uint64_t offset) { return reinterpret_cast<std::byte*>(content.data()) + offset; });
  return content;
}

Pages read_weights(const std::filesystem::path& folder, const FileEntry& entry) {
  const BundleFile file(folder, entry.file);
  check_size(file, entry);
  Pages pages(entry.num_bytes, Pages::Size::kHuge);
  read_and_hash(file, entry, [&](uint64_t offset) { return pages.data() + offset; });
  return pages;
}

}  // namespace pilotfish
