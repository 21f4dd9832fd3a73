#include "engine/session_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "check.h"

namespace {

using pilotfish::Checksum;
using pilotfish::SessionHeader;
using pilotfish::SessionReader;
using pilotfish::SessionWriter;

std::filesystem::path path_of(const char* name) {
  return std::filesystem::temp_directory_path() / (std::string("pilotfish_session_test.") + name);
}

SessionHeader example() {
  return {.bundle = std::string(64, 'a'),
          .layout = "a layout",
          .tokens = {1, 2, 3},
          .num_target_tokens = 2,
          .num_draft_tokens = 1,
          .num_head_tokens = 0,
          .note = "a note"};
}

std::vector<std::byte> some_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  std::mt19937 random(7);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_all(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string saved(const std::filesystem::path& path, std::span<const std::byte> caches) {
  SessionWriter writer(path, example());
  writer.write(caches.first(100));
  writer.write(caches.subspan(100));
  writer.finish();
  return read_all(path);
}

void load(const std::filesystem::path& path, size_t num_bytes) {
  SessionReader reader(path);
  reader.require_cache_bytes(num_bytes);
  std::vector<std::byte> caches(num_bytes);
  reader.read(caches);
  reader.finish();
}

void test_what_was_saved_comes_back() {
  const auto path = path_of("same");
  const std::vector<std::byte> caches = some_bytes(1'000'003);
  saved(path, caches);
  SessionReader reader(path);
  const SessionHeader& found = reader.header();
  CHECK(found.tokens == example().tokens);
  CHECK_EQ(found.bundle, example().bundle);
  CHECK_EQ(found.layout, example().layout);
  CHECK_EQ(found.note, example().note);
  CHECK_EQ(found.num_target_tokens, 2);
  CHECK_EQ(found.num_draft_tokens, 1);
  reader.require_cache_bytes(caches.size());
  std::vector<std::byte> loaded(caches.size());
  reader.read(std::span(loaded).first(5));
  reader.read(std::span(loaded).subspan(5));
  reader.finish();
  CHECK(loaded == caches);
  std::filesystem::remove(path);
}

// Every byte of a file matters: one that is changed, missing or too many is
// refused.
void test_a_damaged_file_is_refused() {
  const auto path = path_of("damaged");
  constexpr size_t kCacheBytes = 300;
  const std::string content = saved(path, some_bytes(kCacheBytes));
  load(path, kCacheBytes);
  int num_refused = 0;
  const auto try_file = [&](const std::string& changed) {
    write_all(path, changed);
    try {
      load(path, kCacheBytes);
    } catch (const pilotfish::Error& error) {
      CHECK(error.status() == PF_BUNDLE_CORRUPT || error.status() == PF_BUNDLE_VERSION);
      CHECK(std::string(error.what()).find(path.string()) != std::string::npos);
      ++num_refused;
    }
  };
  for (size_t at = 0; at < content.size(); ++at) {
    std::string changed = content;
    changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
    try_file(changed);
    try_file(content.substr(0, at));
  }
  try_file(content + "x");
  CHECK_EQ(num_refused, static_cast<int>(2 * content.size() + 1));
  std::filesystem::remove(path);
}

void test_errors_name_the_cause() {
  const auto path = path_of("errors");
  const std::string content = saved(path, some_bytes(200));
  write_all(path, std::string(200, 'x'));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "is no session", SessionReader{path});
  std::string other = content;
  other[std::string("pilotfish session ").size()] = '2';
  write_all(path, other);
  CHECK_ERROR(PF_BUNDLE_VERSION, "another format", SessionReader{path});
  write_all(path, content.substr(0, 30));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "cut short", SessionReader{path});
  write_all(path, content);
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "cut short", load(path, 201));
  std::filesystem::remove(path);
  CHECK_ERROR(PF_FILE_MISSING, path.string(), SessionReader{path});
  CHECK_ERROR(PF_FILE_MISSING, "is no file", SessionReader{std::filesystem::temp_directory_path()});
}

// Headers of lengths that lie, behind hashes that are right: decode() alone
// stands between them and memory.
void test_random_headers_are_refused_or_read() {
  std::mt19937 random(5);
  const std::string good = example().encode();
  int num_read = 0;
  for (int step = 0; step < 20000; ++step) {
    std::string bytes = good.substr(0, random() % 8 == 0 ? random() % good.size() : good.size());
    for (unsigned edit = 0; edit < random() % 4 && !bytes.empty(); ++edit) {
      if (random() % 2 == 0) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      } else if (bytes.size() >= 8) {
        const uint64_t length = uint64_t{random()} << random() % 40;
        std::memcpy(bytes.data() + random() % (bytes.size() - 7), &length, sizeof length);
      }
    }
    try {
      SessionHeader::decode(bytes, "a file");
      ++num_read;
    } catch (const pilotfish::Error& error) {
      CHECK_EQ(error.status(), PF_BUNDLE_CORRUPT);
    }
  }
  CHECK(num_read > 1000);
}

void test_a_checksum_does_not_depend_on_pieces() {
  const std::vector<std::byte> data = some_bytes(5000);
  Checksum whole;
  whole.update(data);
  const uint64_t expected = whole.finish();
  std::mt19937 random(2);
  for (int step = 0; step < 200; ++step) {
    Checksum pieces;
    for (std::span<const std::byte> rest = data; !rest.empty();) {
      const size_t count = std::min<size_t>(rest.size(), random() % 300);
      pieces.update(rest.first(count));
      rest = rest.subspan(count);
    }
    CHECK_EQ(pieces.finish(), expected);
  }
  for (size_t at = 0; at < data.size(); ++at) {
    std::vector<std::byte> changed = data;
    changed[at] ^= std::byte{1};
    Checksum other;
    other.update(changed);
    CHECK(other.finish() != expected);
  }
  Checksum longer;
  longer.update(data);
  longer.update(std::vector<std::byte>(1));
  CHECK(longer.finish() != expected);
}

}  // namespace

int main() {
  test_what_was_saved_comes_back();
  test_a_damaged_file_is_refused();
  test_errors_name_the_cause();
  test_random_headers_are_refused_or_read();
  test_a_checksum_does_not_depend_on_pieces();
  return check::result();
}
