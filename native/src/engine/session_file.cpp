#include "engine/session_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/platform/text.h"
#include "base/sha256.h"
#include "base/status.h"
#include "pilotfish.h"

namespace pilotfish {
namespace {

// The file, numbers little-endian: kMagic, the header's length as u64, its hash, the header, the caches' bytes, and the
// checksum of these as u64. A header: its texts and arrays with their lengths before them.
constexpr std::string_view kKind = "pilotfish session ";
constexpr std::string_view kMagic = "pilotfish session 1\n";
constexpr size_t kHashDigits = 64;
constexpr size_t kPrefixBytes = kMagic.size() + sizeof(uint64_t) + kHashDigits;
constexpr uint64_t kMostHeaderBytes =
    uint64_t{PF_MOST_SESSION_NOTE} + sizeof(int32_t) * uint64_t{PF_MOST_CONTEXT} + 4096;

std::string hash_of(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.finish();
}

std::string_view bytes_of(const auto& value) {
  static_assert(std::is_trivially_copyable_v<std::remove_cvref_t<decltype(value)>>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

void append(std::string& out, std::string_view text) {
  out += bytes_of(uint64_t{text.size()});
  out += text;
}

// Takes values from the front of what is left.
class Fields {
 public:
  Fields(std::string_view bytes, const std::string& name) : rest_(bytes), name_(name) {}

  template <typename Value>
  Value number() {
    Value value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return take(number<uint64_t>()); }
  void end() const {
    if (!rest_.empty())
      fail(PF_BUNDLE_CORRUPT, name_, ": is no session: its header is ", rest_.size(), " bytes too long");
  }

 private:
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) {
      fail(PF_BUNDLE_CORRUPT, name_, ": is no session: its header asks for ", count, " bytes where ", rest_.size(),
           " are left");
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
  const std::string& name_;
};

}  // namespace

std::string SessionHeader::encode() const {
  std::string out;
  append(out, bundle);
  append(out, layout);
  append(out, {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)});
  out += bytes_of(num_target_tokens);
  out += bytes_of(num_draft_tokens);
  out += bytes_of(num_head_tokens);
  append(out, note);
  return out;
}

SessionHeader SessionHeader::decode(std::string_view bytes, const std::string& name) {
  Fields fields(bytes, name);
  SessionHeader header;
  header.bundle = fields.text();
  header.layout = fields.text();
  const std::string_view tokens = fields.text();
  if (tokens.size() % sizeof(int32_t) != 0) fail(PF_BUNDLE_CORRUPT, name, ": is no session: it has part of a token");
  header.tokens.resize(tokens.size() / sizeof(int32_t));
  if (!tokens.empty()) std::memcpy(header.tokens.data(), tokens.data(), tokens.size());
  header.num_target_tokens = fields.number<int32_t>();
  header.num_draft_tokens = fields.number<int32_t>();
  header.num_head_tokens = fields.number<int32_t>();
  header.note = fields.text();
  fields.end();
  return header;
}

SessionWriter::SessionWriter(const std::filesystem::path& path, const SessionHeader& header) : file_(path) {
  const std::string bytes = header.encode();
  file_.write(kMagic);
  file_.write(bytes_of(uint64_t{bytes.size()}));
  file_.write(hash_of(bytes));
  file_.write(bytes);
}

void SessionWriter::write(std::span<const std::byte> cache) {
  checksum_.update(cache);
  file_.write({reinterpret_cast<const char*>(cache.data()), cache.size()});
}

void SessionWriter::finish() {
  file_.write(bytes_of(checksum_.finish()));
  file_.take_its_place();
}

SessionReader::SessionReader(const std::filesystem::path& path)
    : name_(platform::text_of_path(path)), file_(path), header_(read_header()) {}

SessionHeader SessionReader::read_header() {
  std::array<char, kPrefixBytes> prefix;
  const std::string_view text(prefix.data(), prefix.size());
  if (file_.num_bytes() < prefix.size()) fail(PF_BUNDLE_CORRUPT, name_, ": is no session, or cut short");
  file_.read(std::as_writable_bytes(std::span(prefix)));
  if (!text.starts_with(kKind)) fail(PF_BUNDLE_CORRUPT, name_, ": is no session; name another file, or delete it");
  if (!text.starts_with(kMagic)) {
    fail(PF_BUNDLE_VERSION, name_,
         ": is a session of another format than this pilotfish's; load it with the version "
         "that saved it, or delete it");
  }
  uint64_t num_bytes;
  std::memcpy(&num_bytes, prefix.data() + kMagic.size(), sizeof num_bytes);
  if (num_bytes > kMostHeaderBytes || num_bytes > file_.num_bytes() - prefix.size()) {
    fail(PF_BUNDLE_CORRUPT, name_, ": is cut short, or no session: its header has ", num_bytes, " bytes, the file ",
         file_.num_bytes());
  }
  std::string bytes(num_bytes, '\0');
  file_.read(std::as_writable_bytes(std::span(bytes)));
  header_end_ = prefix.size() + num_bytes;
  const std::string_view expected = text.substr(text.size() - kHashDigits);
  if (const std::string found = hash_of(bytes); found != expected) {
    fail(PF_BUNDLE_CORRUPT, name_, ": is damaged: expected sha256 ", expected, " of its header, found ", found);
  }
  return SessionHeader::decode(bytes, name_);
}

void SessionReader::require_cache_bytes(uint64_t num_bytes) const {
  const uint64_t expected = header_end_ + num_bytes + sizeof(uint64_t);
  if (file_.num_bytes() != expected) {
    fail(PF_BUNDLE_CORRUPT, name_, ": is cut short, or too long: expected ", expected, " bytes, found ",
         file_.num_bytes());
  }
}

void SessionReader::read(std::span<std::byte> cache) {
  constexpr size_t kPieceBytes = 1 << 18;  // still in the processor's cache when its checksum is taken
  for (; !cache.empty(); cache = cache.subspan(std::min(kPieceBytes, cache.size()))) {
    const std::span<std::byte> piece = cache.first(std::min(kPieceBytes, cache.size()));
    file_.read(piece);
    checksum_.update(piece);
  }
}

void SessionReader::finish() {
  uint64_t expected;
  file_.read(std::as_writable_bytes(std::span(&expected, 1)));
  if (checksum_.finish() != expected)
    fail(PF_BUNDLE_CORRUPT, name_, ": is damaged: the checksum of its caches differs");
}

}  // namespace pilotfish
