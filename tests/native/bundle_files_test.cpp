// Which files a bundle may have: regular ones, and links to files beside them or into the cache of a hub.
#include "bundle/bundle_files.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "bundle/manifest.h"
#include "check.h"

namespace {

namespace fs = std::filesystem;
using pilotfish::BundleFile;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("pilotfish-files-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  Folder(Folder&&) = delete;
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

void write(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

void test_links() {
  const Folder root;
  const fs::path snapshot = root / "snapshots" / "1a2b", nested = snapshot / "deeper";
  write(root / "blobs/5678", "blob");
  write(root / "elsewhere/secret", "secret");
  write(snapshot / "own", "own");
  fs::create_directories(nested);
  fs::create_symlink("own", snapshot / "beside");
  fs::create_symlink("../../blobs/5678", snapshot / "cached");
  fs::create_symlink("../../../blobs/5678", nested / "cached");
  fs::create_symlink("../../elsewhere/secret", snapshot / "relative");
  fs::create_symlink(root / "elsewhere/secret", snapshot / "absolute");
  fs::create_symlink("../../elsewhere", snapshot / "folder");
  fs::create_symlink("nothing", snapshot / "dangling");
  fs::create_symlink("round", snapshot / "round");
  fs::create_directory_symlink(snapshot, root / "linked");
  for (const fs::path& good :
       {snapshot / "own", snapshot / "beside", snapshot / "cached", nested / "cached", root / "linked" / "cached"}) {
    CHECK(BundleFile(good.parent_path(), good.filename()).num_bytes() > 0);
  }
  for (const char* const bad : {"relative", "absolute", "folder"}) {
    CHECK_ERROR(PF_BUNDLE_CORRUPT, "is a link to ", BundleFile(snapshot, bad));
  }
  for (const char* const missing : {"dangling", "round", "nothing"}) {
    CHECK_ERROR(PF_FILE_MISSING, missing, BundleFile(snapshot, missing));
  }
  fs::remove_all(root / "blobs");
  fs::create_directory_symlink(root / "elsewhere", root / "blobs");
  fs::create_symlink("../../blobs/secret", snapshot / "through");
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "is a link to ", BundleFile(snapshot, "through"));
}

void test_kinds() {
  const Folder root;
  CHECK_EQ(::mkfifo((root / "pipe").c_str(), 0600), 0);
  fs::create_directory(root / "inside");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (root / "socket").c_str(), sizeof address.sun_path - 1);
  CHECK_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "is a pipe, not a file", BundleFile(root / ".", "pipe"));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "is a folder, not a file", BundleFile(root / ".", "inside"));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "is a socket, not a file", BundleFile(root / ".", "socket"));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "is a device, not a file", BundleFile("/dev", "null"));
  ::close(listener);
}

void test_manifests() {
  const Folder root;
  CHECK_ERROR(PF_FILE_MISSING, "a pilotfish bundle?", pilotfish::read_manifest(root / "."));
  CHECK_EQ(::mkfifo((root / "manifest.json").c_str(), 0600), 0);
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "is a pipe", pilotfish::read_manifest(root / "."));
  fs::remove(root / "manifest.json");
  write(root / "manifest.json", "");
  fs::resize_file(root / "manifest.json", uint64_t{1} << 40);  // takes no room on the disk
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "at most 16777216 are allowed", pilotfish::read_manifest(root / "."));
}

void test_sizes() {
  const Folder root;
  write(root / "file", "four");
  pilotfish::FileEntry entry{"file", 4, std::string(64, '0')};
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "expected sha256 000", pilotfish::read_checked({.folder = root / "."}, entry, 4));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "at most 3 are allowed", pilotfish::read_checked({.folder = root / "."}, entry, 3));
  entry.num_bytes = 5;
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "expected 5 bytes, found 4", pilotfish::check_file({.folder = root / "."}, entry));
}

}  // namespace

int main() {
  test_links();
  test_kinds();
  test_manifests();
  test_sizes();
  return check::result();
}
