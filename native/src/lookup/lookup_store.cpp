#include "lookup/lookup_store.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "base/platform/text.h"
#include "base/sha256.h"
#include "base/status.h"

namespace pilotfish {
namespace {

// The file: kMagic, the tokenizer's hash, the hash of the ids, a line's end, and the ids as little-endian int32 with
// LookupIndex::kNone between texts.
constexpr std::string_view kMagic = "pilotfish lookup store 1\n";
constexpr size_t kHashDigits = 64;
constexpr size_t kHeaderBytes = kMagic.size() + 2 * kHashDigits + 1;
constexpr uint64_t kMostFileBytes = uint64_t{1} << 31;

std::string hash_of(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.finish();
}

}  // namespace

LookupStore::LookupStore(std::filesystem::path path, std::string tokenizer_hash, int32_t num_ids, uint64_t max_bytes)
    : path_(std::move(path)),
      tokenizer_hash_(std::move(tokenizer_hash)),
      num_ids_(num_ids),
      index_(max_tokens(max_bytes)),
      scratch_(max_tokens(max_bytes)) {
  if (const std::optional<std::string> content = read_file(path_, kMostFileBytes)) index_.append(read_ids(*content));
}

int32_t LookupStore::max_tokens(uint64_t max_bytes) noexcept {
  return static_cast<int32_t>((std::clamp(max_bytes, kLeastBytes, kMostBytes) - kHeaderBytes) / sizeof(int32_t));
}

uint64_t LookupStore::num_bytes(uint64_t max_bytes) noexcept {
  return LookupIndex::num_bytes(max_tokens(max_bytes)) + sizeof(int32_t) * uint64_t(max_tokens(max_bytes));
}

std::span<const int32_t> LookupStore::read_ids(const std::string& content) {
  const std::string_view all(content);
  const std::string name = platform::text_of_path(path_);
  if (!all.starts_with(kMagic) || all.size() < kHeaderBytes || (all.size() - kHeaderBytes) % sizeof(int32_t) != 0) {
    fail(PF_BUNDLE_CORRUPT, name,
         ": is no lookup store of this version, or cut short; name another file, or delete it");
  }
  const std::string_view tokenizer = all.substr(kMagic.size(), kHashDigits);
  if (tokenizer != tokenizer_hash_) {
    fail(PF_PAIR_MISMATCH, name, ": is of the tokenizer ", tokenizer, ", the bundle's is ", tokenizer_hash_,
         "; name another file for this bundle");
  }
  const std::string_view bytes = all.substr(kHeaderBytes);
  const std::string_view expected = all.substr(kMagic.size() + kHashDigits, kHashDigits);
  if (const std::string found = hash_of(bytes); found != expected) {
    fail(PF_BUNDLE_CORRUPT, name, ": expected sha256 ", expected, ", found ", found);
  }
  size_t num_tokens = bytes.size() / sizeof(int32_t);
  const size_t num_skipped = num_tokens > scratch_.size() ? num_tokens - scratch_.size() : 0;
  num_tokens -= num_skipped;
  std::memcpy(scratch_.data(), bytes.data() + num_skipped * sizeof(int32_t), num_tokens * sizeof(int32_t));
  const std::span<const int32_t> ids(scratch_.data(), num_tokens);
  for (const int32_t id : ids) {
    if (id < LookupIndex::kNone || id >= num_ids_) {
      fail(PF_BUNDLE_CORRUPT, name, ": expected ids below ", num_ids_, ", found ", id);
    }
  }
  known_hash_ = expected;
  return ids;
}

void LookupStore::add(std::span<const int32_t> text) noexcept {
  const auto most = static_cast<size_t>(index_.max_tokens());
  text = text.last(std::min(text.size(), most - 1));
  const std::span<const int32_t> stored = index_.tokens();
  if (text.empty()) return;
  if (stored.size() > text.size() && std::equal(text.begin(), text.end(), stored.end() - text.size() - 1)) return;
  if (stored.size() + text.size() + 1 > most) {
    // Half of the store goes at once, so that a token costs O(1) in the long run.
    const size_t num_kept = std::min(most / 2, most - text.size() - 1);
    const size_t num_copied = std::min(num_kept, stored.size());
    std::copy(stored.end() - num_copied, stored.end(), scratch_.begin());
    index_.clear();
    index_.append(std::span<const int32_t>(scratch_.data(), num_copied));
    num_unsaved_ = std::min(num_unsaved_, num_copied);
  }
  index_.append(text);
  index_.append(LookupIndex::kNone);
  num_unsaved_ += text.size() + 1;
}

void LookupStore::take_others_texts() {
  const std::optional<std::string> content = read_file(path_, kMostFileBytes);
  if (!content) return;
  const std::string_view header = std::string_view(*content).substr(0, kHeaderBytes);
  if (!known_hash_.empty() && header.ends_with(known_hash_ + '\n')) return;
  const std::span<const int32_t> stored = read_ids(*content);
  const std::span<const int32_t> unsaved = index_.tokens().last(num_unsaved_);
  const std::vector<int32_t> added(unsaved.begin(), unsaved.end());
  index_.clear();
  index_.append(stored);
  num_unsaved_ = 0;
  for (auto begin = added.begin(); begin != added.end();) {
    const auto end = std::find(begin, added.end(), LookupIndex::kNone);
    add({begin, end});
    begin = end == added.end() ? end : end + 1;
  }
}

void LookupStore::save() {
  if (num_unsaved_ == 0) return;
  const FileLock lock(path_);
  take_others_texts();
  const std::span<const int32_t> ids = index_.tokens();
  const std::string_view bytes(reinterpret_cast<const char*>(ids.data()), ids.size_bytes());
  std::string content(kMagic);
  content += tokenizer_hash_;
  const std::string hash = hash_of(bytes);
  content += hash;
  content += '\n';
  content += bytes;
  write_file(path_, content);
  known_hash_ = hash;
  num_unsaved_ = 0;
}

}  // namespace pilotfish
