// A weights file that a thread reads: what comes of it, what is wrong with it,
// and how its reading ends early. The test has its own read() and mmap(), to be
// a disk that is slow or broken.
#include "bundle/weights_file.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "check.h"

namespace {

std::atomic<int> microseconds_a_read{0}, reads_before_an_error{-1};
std::atomic<bool> refuses_mappings{false};

}  // namespace

extern "C" ssize_t read(int descriptor, void* data, size_t num_bytes) {
  if (const int wait = microseconds_a_read.load(); wait > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(wait));
  }
  if (reads_before_an_error.load() >= 0 && reads_before_an_error.fetch_sub(1) == 0) {
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_read, descriptor, data, num_bytes);
}

// Of files, as File::map() calls it.
extern "C" void* mmap(void* at, size_t num_bytes, int rights, int flags, int descriptor, off_t offset) {
  if (descriptor >= 0 && refuses_mappings) {
    errno = ENODEV;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, num_bytes, rights, flags, descriptor, offset));
}

namespace {

namespace fs = std::filesystem;
using pilotfish::BundleSource;
using pilotfish::FileEntry;
using pilotfish::FileRange;
using pilotfish::Hashes;
using pilotfish::TensorEntry;
using pilotfish::WeightsFile;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int kSlow = 2000;  // of a piece of 1 MiB

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("pilotfish-weights-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  Folder(Folder&&) = delete;
  ~Folder() {
    microseconds_a_read = 0;
    reads_before_an_error = -1;
    fs::remove_all(path_);
  }
  BundleSource source() const { return {.folder = path_}; }
  fs::path file() const { return path_ / "weights"; }

 private:
  fs::path path_;
};

TensorEntry tensor(uint64_t offset, uint64_t num_bytes) {
  return {"tensor", TensorEntry::Type::kU8, {int64_t(num_bytes)}, offset, num_bytes};
}

FileEntry write(const Folder& folder, const std::string& content) {
  std::ofstream(folder.file(), std::ios::binary) << content;
  pilotfish::Sha256 hash;
  hash.update(content.data(), content.size());
  return {"weights", content.size(), hash.finish()};
}

// Of zeros, which take no room on the disk. Nobody waits for its hash.
FileEntry write_long(const Folder& folder) {
  std::ofstream(folder.file(), std::ios::binary) << "";
  fs::resize_file(folder.file(), 512 * kMiB);
  return {"weights", 512 * kMiB, std::string(64, '0')};
}

std::string some_content(size_t num_bytes) {
  std::string content(num_bytes, '\0');
  for (size_t i = 0; i < num_bytes; ++i) content[i] = static_cast<char>(i * 2654435761u >> 13);
  return content;
}

void test_content() {
  const Folder folder;
  for (const size_t num_bytes : {size_t{0}, size_t{1}, size_t{kMiB}, size_t{3 * kMiB + 5}}) {
    const std::string content = some_content(num_bytes);
    const FileEntry entry = write(folder, content);
    std::atomic<uint64_t> num_read{7};
    WeightsFile file(folder.source(), entry, num_read);
    const TensorEntry whole = tensor(0, num_bytes);
    const std::byte* const data = file.at(whole);
    file.wait();
    file.wait();
    CHECK_EQ(num_read.load(), 7 + num_bytes);
    const auto bytes = file.take();
    CHECK(bytes->at({0, num_bytes}) == data);
    CHECK(num_bytes == 0 || std::memcmp(data, content.data(), num_bytes) == 0);
  }
}

// Each tensor has its bytes wherever it lies: read, mapped, or across both, as
// tensors of a manifest may overlap.
void test_some_is_mapped() {
  const Folder folder;
  const std::string content = some_content(3 * kMiB + 5);
  const FileEntry entry = write(folder, content);
  const std::vector<std::vector<FileRange>> choices{
      {{0, 3 * kMiB + 5}},
      {{kMiB + 4096, 100}},
      {{2 * kMiB, kMiB + 5}, {4096, 4096}},
      {{4096, kMiB}, {8192, 100}, {8192, 2 * kMiB}},
  };
  for (const auto& mapped : choices) {
    std::atomic<uint64_t> num_read{0};
    WeightsFile file(folder.source(), entry, num_read, mapped);
    file.wait();
    CHECK_EQ(num_read.load(), entry.num_bytes);
    const auto bytes = file.take();
    for (const FileRange range : std::vector<FileRange>{{0, 4096},
                                                        {4096, 4096},
                                                        {8192, 100},
                                                        {12288, kMiB},
                                                        {kMiB, 5000},
                                                        {kMiB + 4096, 100},
                                                        {kMiB + 8192, kMiB},
                                                        {3 * kMiB, 5},
                                                        {0, 3 * kMiB + 5}}) {
      const std::byte* const data = bytes->at(range);
      CHECK_EQ(reinterpret_cast<uintptr_t>(data) % 4096, uintptr_t{0});
      CHECK(std::memcmp(data, content.data() + range.offset, range.num_bytes) == 0);
    }
  }
}

// Bytes that are mapped are the file's own: they take no memory, and are hashed
// like the others.
void test_what_is_mapped_is_the_file() {
  const Folder folder;
  const std::string content = some_content(2 * kMiB);
  FileEntry entry = write(folder, content);
  const std::vector<FileRange> mapped{{kMiB, 4096}};
  std::atomic<uint64_t> num_read{0};
  WeightsFile file(folder.source(), entry, num_read, mapped);
  file.wait();
  std::fstream(folder.file(), std::ios::in | std::ios::out | std::ios::binary).seekp(kMiB).write("changed", 7);
  CHECK(std::memcmp(file.at(tensor(kMiB, 4096)), "changed", 7) == 0);
  std::fstream(folder.file(), std::ios::in | std::ios::out | std::ios::binary).seekp(0).write("changed", 7);
  CHECK(std::memcmp(file.at(tensor(0, 4096)), content.data(), 7) == 0);
  WeightsFile again(folder.source(), entry, num_read, mapped);
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "expected sha256 " + entry.sha256, again.wait());
}

// A file system that maps no files.
void test_a_mapping_that_is_refused() {
  const Folder folder;
  const FileEntry entry = write(folder, some_content(kMiB));
  const std::vector<FileRange> mapped{{0, 4096}};
  std::atomic<uint64_t> num_read{0};
  refuses_mappings = true;
  CHECK_ERROR(PF_FILE_MISSING, std::strerror(ENODEV), WeightsFile(folder.source(), entry, num_read, mapped));
  WeightsFile(folder.source(), entry, num_read).wait();
  refuses_mappings = false;
}

void test_other_files() {
  const Folder folder;
  std::atomic<uint64_t> num_read{0};
  FileEntry entry = write(folder, some_content(2 * kMiB));
  CHECK_ERROR(PF_FILE_MISSING, "nothing", WeightsFile(folder.source(), {"nothing", 1, ""}, num_read));
  entry.num_bytes += 1;
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "expected 2097153 bytes, found 2097152",
              WeightsFile(folder.source(), entry, num_read));
  entry.num_bytes -= 1;
  entry.sha256.front() = entry.sha256.front() == '0' ? '1' : '0';
  WeightsFile file(folder.source(), entry, num_read);
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "expected sha256 " + entry.sha256, file.wait());
  BundleSource trusting = folder.source();
  trusting.hashes = Hashes::kIgnored;
  WeightsFile(trusting, entry, num_read).wait();
}

void test_a_file_that_becomes_shorter() {
  const Folder folder;
  const FileEntry entry = write_long(folder);
  microseconds_a_read = kSlow;
  std::atomic<uint64_t> num_read{0};
  WeightsFile file(folder.source(), entry, num_read);
  fs::resize_file(folder.file(), kMiB);
  microseconds_a_read = 0;
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "bytes early while being read", file.wait());
}

void test_a_disk_that_fails() {
  const Folder folder;
  const FileEntry entry = write(folder, some_content(4 * kMiB));
  reads_before_an_error = 2;
  std::atomic<uint64_t> num_read{0};
  WeightsFile file(folder.source(), entry, num_read);
  CHECK_ERROR(PF_FILE_MISSING, std::strerror(EIO), file.wait());
  CHECK_EQ(num_read.load(), 2 * kMiB);
}

void test_reading_ends_with_its_owner() {
  const Folder folder;
  const FileEntry entry = write_long(folder);
  microseconds_a_read = kSlow;
  std::atomic<uint64_t> num_read{0};
  {
    const WeightsFile file(folder.source(), entry, num_read);
  }
  CHECK(num_read.load() < entry.num_bytes);
}

void test_who_waits_may_give_up() {
  const Folder folder;
  const FileEntry entry = write_long(folder);
  microseconds_a_read = kSlow;
  std::atomic<uint64_t> num_read{0};
  BundleSource source = folder.source();
  int num_calls = 0;
  source.while_waiting = [&] {
    if (++num_calls == 2) pilotfish::fail(PF_CALLBACK_FAILED, "enough");
  };
  {
    WeightsFile file(source, entry, num_read);
    CHECK_ERROR(PF_CALLBACK_FAILED, "enough", file.wait());
  }
  CHECK_EQ(num_calls, 2);
  CHECK(num_read.load() > 0 && num_read.load() < entry.num_bytes);
}

}  // namespace

int main() {
  test_content();
  test_some_is_mapped();
  test_what_is_mapped_is_the_file();
  test_a_mapping_that_is_refused();
  test_other_files();
  test_a_file_that_becomes_shorter();
  test_a_disk_that_fails();
  test_reading_ends_with_its_owner();
  test_who_waits_may_give_up();
  return check::result();
}
