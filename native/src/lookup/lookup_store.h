// Texts of earlier requests for lookup drafts, in memory and in a file: of one app and one tokenizer, and of bounded
// size. The latest texts stay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lookup/lookup_index.h"
#include "pilotfish.h"

namespace pilotfish {

class LookupStore {
 public:
  static constexpr uint64_t kLeastBytes = PF_LEAST_LOOKUP_STORE_BYTES;
  static constexpr uint64_t kMostBytes = PF_MOST_LOOKUP_STORE_BYTES;

  // Reads the file, if it exists. It may have up to max_bytes; of a longer one the latest texts that fit are taken.
  // `tokenizer_hash` has 64 hexadecimal digits, and ids are below num_ids. Throws PF_PAIR_MISMATCH when the file is of
  // another tokenizer, PF_BUNDLE_CORRUPT when it is no store or damaged, and PF_FILE_MISSING when it cannot be read.
  LookupStore(std::filesystem::path path, std::string tokenizer_hash, int32_t num_ids, uint64_t max_bytes);
  // Memory of a store of that size.
  static uint64_t num_bytes(uint64_t max_bytes) noexcept;

  const LookupIndex& index() const noexcept { return index_; }
  // Adds a text, or as much of its end as fits; the earliest texts make room for it. A text that the store has at its
  // end already is not added again.
  void add(std::span<const int32_t> text) noexcept;
  // Writes the file anew if a text was added since. Texts that other processes have put there meanwhile stay before the
  // added ones, also in memory, as far as there is room. Throws PF_FILE_MISSING when it cannot be written, and what the
  // constructor throws where the file has become another one; it stays then.
  void save();

 private:
  static int32_t max_tokens(uint64_t max_bytes) noexcept;
  // The ids of a file's content, in scratch_.
  std::span<const int32_t> read_ids(const std::string& content);
  void take_others_texts();

  const std::filesystem::path path_;
  const std::string tokenizer_hash_;
  const int32_t num_ids_;
  LookupIndex index_;
  std::vector<int32_t> scratch_;  // [max_tokens] texts that stay when others go
  size_t num_unsaved_ = 0;        // tokens at the end that the file does not have
  std::string known_hash_;        // of the ids in the file when it was last read or written
};

}  // namespace pilotfish
