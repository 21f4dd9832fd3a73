// Open files, and what std::filesystem does not have. Failures are error codes, whose messages are the system's words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

namespace pilotfish::platform {

enum class Links { kFollowed, kRefused };  // where a path's last part is one

// An open file; whoever uses it afterwards has a descriptor, or an error said why not.
class File {
 public:
  struct Facts {
    std::filesystem::file_type type;
    uint64_t num_bytes;
  };

  // Never waits, not even for the writer of a pipe.
  static File open_to_read(const std::filesystem::path& path, Links links, std::error_code& error);
  // A new file that only its owner may use, with no more rights than the one at `like` has, if there is one. Links are
  // refused, and whatever is there already.
  static File create_private(const std::filesystem::path& path, const std::filesystem::path& like,
                             std::error_code& error);
  // To be locked; made if it does not exist.
  static File open_to_lock(const std::filesystem::path& path, std::error_code& error);

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  Facts facts(std::error_code& error) const;
  // Bytes that were read, at most num_bytes, 0 at the end of the file.
  size_t read(void* data, size_t num_bytes, std::error_code& error) const;
  // Bytes that were written, at most num_bytes.
  size_t write(const void* data, size_t num_bytes, std::error_code& error) const;
  // The first num_bytes, at least 1, as memory to be read, which ends with unmap_file() and not with the file; nullptr
  // with an error. Whoever changes the file changes the memory.
  void* map(size_t num_bytes, std::error_code& error) const;
  // Waits until the disk has what was written.
  void sync(std::error_code& error) const;
  // Whether nobody else had the lock, which ends with the file.
  bool try_lock() const noexcept;
  void close() noexcept;

 private:
  explicit File(int descriptor) noexcept : descriptor_(descriptor) {}

  int descriptor_;  // -1: none
};

// `from`, which is closed, takes the place of `to`: whoever looks sees either the one or the other.
void replace_file(const std::filesystem::path& from, const std::filesystem::path& to, std::error_code& error);

// A number that no other process has now.
uint64_t process_id() noexcept;

// Sets a variable of the process's environment that is not set.
void set_default_variable(const char* name, const char* value);

}  // namespace pilotfish::platform
