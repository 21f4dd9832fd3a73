// The parts that entries of a manifest have in common, read from JSON with messages that name the wrong value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bundle/manifest.h"
#include "nlohmann/json.hpp"

namespace pilotfish {

using Json = nlohmann::json;

// What a manifest may say at most. The operators of GRAPH.md have no more, and no product of these, of the engine's
// options and of the bytes of an element leaves 64 bits.
inline constexpr int64_t kMostLayers = 1024;
inline constexpr int64_t kMostHeads = 512;
inline constexpr int64_t kMostHeadDim = 512;
inline constexpr int64_t kMostFeatures = int64_t{1} << 24;  // of a row between two operators, or of logits
inline constexpr int64_t kMostPositions = int64_t{1} << 30;

// A JSON object with the path that led to it, so that a message can say which value is wrong.
class Node {
 public:
  Node(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) wrong("an object");
  }

  bool has(const char* key) const { return json_.contains(key); }
  bool has_value(const char* key) const { return has(key) && !json_.at(key).is_null(); }
  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : json_.items()) names.push_back(name);
    return names;
  }
  Node object(const char* key) const { return Node(at(key), where_ + "." + key); }

  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) wrong(key, "a string", value);
    return value.get<std::string>();
  }

  int64_t integer(const char* key, int64_t least, int64_t most) const { return integer_of(at(key), key, least, most); }
  // From 1 to `most`, which is of 32 bits.
  int32_t dim(const char* key, int64_t most) const { return static_cast<int32_t>(integer(key, 1, most)); }

  std::vector<int64_t> integers(const char* key, int64_t least, int64_t most) const {
    std::vector<int64_t> values;
    for (const Json& value : array(key)) values.push_back(integer_of(value, key, least, most));
    return values;
  }

  const Json& array(const char* key) const {
    const Json& value = at(key);
    if (!value.is_array()) wrong(key, "an array", value);
    return value;
  }

  [[noreturn]] void wrong(const char* key, const std::string& expected, const Json& found) const {
    fail(PF_BUNDLE_CORRUPT, where_, ".", key, ": expected ", expected, ", found ", shown(found));
  }

  const std::string& where() const { return where_; }

  // A value as an error shows it: its beginning, where it is long.
  static std::string shown(const Json& value) {
    constexpr size_t kMostBytes = 200;
    std::string text = value.dump();
    if (text.size() <= kMostBytes) return text;
    text = value.dump(-1, ' ', true);  // of one byte a character, so that none is cut
    return text.substr(0, kMostBytes) + "...";
  }

 private:
  [[noreturn]] void wrong(const char* expected) const {
    fail(PF_BUNDLE_CORRUPT, where_, ": expected ", expected, ", found ", shown(json_));
  }

  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail(PF_BUNDLE_CORRUPT, where_, ".", key, ": expected a value, found none");
    return *found;
  }

  int64_t integer_of(const Json& value, const char* key, int64_t least, int64_t most) const {
    const bool too_large = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
    if (!value.is_number_integer() || too_large || value.get<int64_t>() < least || value.get<int64_t>() > most) {
      wrong(key, "an integer from " + std::to_string(least) + " to " + std::to_string(most), value);
    }
    return value.get<int64_t>();
  }

  const Json& json_;
  std::string where_;
};

FileEntry parse_file(const Node& node);
// Of a file of file_bytes.
std::vector<TensorEntry> parse_tensors(const Node& node, uint64_t file_bytes);
// Empty where the entry has none.
std::vector<int32_t> parse_logit_ids(const Node& node, int32_t num_logits, int32_t vocab_size);
CacheType parse_cache_type(const Node& node);
// "a, b and c", where `last` is "and".
std::string listed(const std::vector<std::string>& names, const char* last);

}  // namespace pilotfish
