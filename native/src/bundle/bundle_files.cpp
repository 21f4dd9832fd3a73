#include "bundle/bundle_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "bundle/sha256.h"
#include "status.h"

namespace pilotfish {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;  // still in the second-level cache when it is hashed

class File {
 public:
  explicit File(const std::filesystem::path& path)
      : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) fail(PF_FILE_MISSING, path.string(), ": ", std::strerror(errno));
  }
  File(File&&) = delete;
  ~File() { close(descriptor_); }

  // Reads num_bytes, unless the file ends or cannot be read.
  void read_exactly(std::byte* data, size_t num_bytes) const {
    while (num_bytes > 0) {
      const ssize_t count = read(descriptor_, data, num_bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(PF_FILE_MISSING, path_.string(), ": ", std::strerror(errno));
      if (count == 0) fail(PF_BUNDLE_CORRUPT, path_.string(), ": ended ", num_bytes, " bytes early while being read");
      data += count;
      num_bytes -= count;
    }
  }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

void check_hash(const std::filesystem::path& path, const FileEntry& entry, Sha256& hash) {
  const std::string found = hash.finish();
  if (found != entry.sha256) {
    fail(PF_BUNDLE_CORRUPT, path.string(), ": expected sha256 ", entry.sha256, ", found ", found);
  }
}

}  // namespace

void check_file_size(const std::filesystem::path& folder, const FileEntry& entry) {
  const std::filesystem::path path = folder / entry.file;
  std::error_code error;
  const uintmax_t found = std::filesystem::file_size(path, error);
  if (error) fail(PF_FILE_MISSING, path.string(), ": ", error.message());
  if (found != entry.num_bytes) {
    fail(PF_BUNDLE_CORRUPT, path.string(), ": expected ", entry.num_bytes, " bytes, found ", found);
  }
}

void check_file(const std::filesystem::path& folder, const FileEntry& entry) {
  check_file_size(folder, entry);
  const std::filesystem::path path = folder / entry.file;
  const File file(path);
  Sha256 hash;
  std::vector<std::byte> buffer(std::min<uint64_t>(kReadBytes, entry.num_bytes));
  for (uint64_t done = 0; done < entry.num_bytes;) {
    const size_t count = std::min<uint64_t>(buffer.size(), entry.num_bytes - done);
    file.read_exactly(buffer.data(), count);
    hash.update(buffer.data(), count);
    done += count;
  }
  check_hash(path, entry, hash);
}

Pages read_weights(const std::filesystem::path& folder, const FileEntry& entry) {
  check_file_size(folder, entry);
  const std::filesystem::path path = folder / entry.file;
  const File file(path);
  Sha256 hash;
  Pages pages(entry.num_bytes, Pages::Size::kHuge);
  for (size_t done = 0; done < pages.num_bytes();) {
    const size_t count = std::min(kReadBytes, pages.num_bytes() - done);
    file.read_exactly(pages.data() + done, count);
    hash.update(pages.data() + done, count);
    done += count;
  }
  check_hash(path, entry, hash);
  return pages;
}

}  // namespace pilotfish
