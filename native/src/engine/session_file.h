// The file of a saved session: what the first whole blocks of a conversation hold in the caches of the models, and text
// of the caller's beside it. A file may be anybody's: each number is bounded where it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/checksum.h"

namespace pilotfish {

// What stands before the caches, with a hash of its own.
struct SessionHeader {
  std::string bundle;             // hash of its manifest
  std::string layout;             // of the caches' bytes: library, device, block size
  std::vector<int32_t> tokens;    // of the conversation
  int32_t num_target_tokens = 0;  // from the first on that the target's cache holds, and the others' caches
  int32_t num_draft_tokens = 0;
  int32_t num_head_tokens = 0;
  std::string note;  // the caller's

  // The header as the file has it.
  std::string encode() const;
  // Throws PF_BUNDLE_CORRUPT, naming the file, unless `bytes` are an encoded header's behind its magic, length and
  // hash.
  static SessionHeader decode(std::string_view bytes, const std::string& name);
};

class SessionWriter {
 public:
  SessionWriter(const std::filesystem::path& path, const SessionHeader& header);
  void write(std::span<const std::byte> cache);
  // The file takes the place of the one at the path, if there is one.
  void finish();

 private:
  NewFile file_;
  Checksum checksum_;
};

class SessionReader {
 public:
  // Throws PF_FILE_MISSING, PF_BUNDLE_VERSION for a session of another format, and PF_BUNDLE_CORRUPT.
  explicit SessionReader(const std::filesystem::path& path);
  const SessionHeader& header() const noexcept { return header_; }
  const std::string& name() const noexcept { return name_; }
  // Throws PF_BUNDLE_CORRUPT unless so many bytes of caches follow the header, and nothing else.
  void require_cache_bytes(uint64_t num_bytes) const;
  void read(std::span<std::byte> cache);
  // After all was read: throws PF_BUNDLE_CORRUPT if something has changed since it was written.
  void finish();

 private:
  SessionHeader read_header();

  const std::string name_;
  FileReader file_;
  uint64_t header_end_ = 0;
  const SessionHeader header_;
  Checksum checksum_;
};

}  // namespace pilotfish
