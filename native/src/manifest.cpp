#include "manifest.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>

#include "nlohmann/json.hpp"
#include "status.h"

namespace pilotfish {
namespace {

using Json = nlohmann::json;

// A JSON object with the path that led to it, so that a message can say which value is wrong.
class Node {
 public:
  Node(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) wrong("an object");
  }

  bool has(const char* key) const { return json_.contains(key); }
  bool has_value(const char* key) const { return has(key) && !json_.at(key).is_null(); }
  Node object(const char* key) const { return Node(at(key), where_ + "." + key); }

  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) wrong(key, "a string", value);
    return value.get<std::string>();
  }

  int64_t integer(const char* key, int64_t least, int64_t most = std::numeric_limits<int32_t>::max()) const {
    return integer_of(at(key), key, least, most);
  }

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
    fail(PF_BUNDLE_CORRUPT, where_, ".", key, ": expected ", expected, ", found ", found.dump());
  }

  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void wrong(const char* expected) const {
    fail(PF_BUNDLE_CORRUPT, where_, ": expected ", expected, ", found ", json_.dump());
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

constexpr int64_t kMaxFileBytes = int64_t{1} << 44;

FileEntry parse_file(const Node& node) {
  FileEntry entry{node.text("file"), static_cast<uint64_t>(node.integer("bytes", 1, kMaxFileBytes)),
                  node.text("sha256")};
  const std::filesystem::path path(entry.file);
  if (entry.file.empty() || path.is_absolute() || path.filename() != path) {
    node.wrong("file", "the name of a file in the bundle", entry.file);
  }
  const bool hex = std::all_of(entry.sha256.begin(), entry.sha256.end(),
                               [](unsigned char c) { return std::isdigit(c) || (c >= 'a' && c <= 'f'); });
  if (entry.sha256.size() != 64 || !hex) node.wrong("sha256", "64 lower-case hexadecimal digits", entry.sha256);
  return entry;
}

TensorEntry parse_tensor(const Node& node, uint64_t file_bytes) {
  TensorEntry tensor{.name = node.text("name"),
                     .type = TensorEntry::Type::kU8,
                     .shape = node.integers("shape", 1, kMaxFileBytes),
                     .offset = static_cast<uint64_t>(node.integer("offset", 0, kMaxFileBytes)),
                     .num_bytes = static_cast<uint64_t>(node.integer("bytes", 1, kMaxFileBytes))};
  const std::string type = node.text("dtype");
  if (type != "u8" && type != "f32") node.wrong("dtype", "u8 or f32", type);
  if (type == "f32") tensor.type = TensorEntry::Type::kF32;
  if (tensor.offset % 4096 != 0) node.wrong("offset", "a multiple of 4096", tensor.offset);
  if (tensor.offset + tensor.num_bytes > file_bytes) {
    node.wrong("bytes", "an end within the file's " + std::to_string(file_bytes) + " bytes", tensor.num_bytes);
  }
  uint64_t shape_bytes = type == "f32" ? 4 : 1;
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(shape_bytes, static_cast<uint64_t>(dim), &shape_bytes)) {
      node.wrong("shape", "a shape that fits the file", tensor.shape);
    }
  }
  if (shape_bytes != tensor.num_bytes) node.wrong("bytes", std::to_string(shape_bytes), tensor.num_bytes);
  return tensor;
}

std::vector<int32_t> parse_logit_ids(const Node& node, int32_t num_logits, int32_t vocab_size) {
  std::vector<int32_t> ids;
  if (!node.has_value("logit_ids")) return ids;
  for (const int64_t id : node.integers("logit_ids", 0, vocab_size - 1)) ids.push_back(static_cast<int32_t>(id));
  if (ids.size() != size_t(num_logits)) node.wrong("logit_ids", std::to_string(num_logits) + " ids", ids.size());
  if (std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) != ids.end()) {
    node.wrong("logit_ids", "ascending ids", "others");
  }
  return ids;
}

ModelEntry parse_model(const Node& node) {
  const auto dim = [&](const char* key) { return static_cast<int32_t>(node.integer(key, 1)); };
  ModelEntry model{.graph = parse_file(node.object("graph")),
                   .weights = parse_file(node.object("weights")),
                   .tensors = {},
                   .num_layers = dim("num_layers"),
                   .hidden_size = dim("hidden_size"),
                   .intermediate_size = dim("intermediate_size"),
                   .num_heads = dim("num_heads"),
                   .num_kv_heads = dim("num_kv_heads"),
                   .head_dim = dim("head_dim"),
                   .vocab_size = dim("vocab_size"),
                   .num_logits = dim("num_logits"),
                   .max_positions = dim("max_positions"),
                   .cache_type = CacheType::kF16,
                   .logit_ids = {}};
  if (model.num_logits > model.vocab_size) {
    node.wrong("num_logits", "at most vocab_size " + std::to_string(model.vocab_size), model.num_logits);
  }
  model.logit_ids = parse_logit_ids(node, model.num_logits, model.vocab_size);
  const std::string cache = node.text("cache_dtype");
  if (cache != "f16" && cache != "f32") node.wrong("cache_dtype", "f16 or f32", cache);
  if (cache == "f32") model.cache_type = CacheType::kF32;
  const Json& tensors = node.array("tensors");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Node tensor(tensors[i], node.where() + ".tensors[" + std::to_string(i) + "]");
    model.tensors.push_back(parse_tensor(tensor, model.weights.num_bytes));
  }
  return model;
}

// The pair shares one tokenizer; only ids that it does not know may be missing from one of them.
void check_pair(const Manifest& manifest, const std::string& where) {
  const int32_t target = manifest.target.vocab_size;
  const int32_t draft = manifest.draft->vocab_size;
  if (target != draft && std::min(target, draft) < manifest.tokenizer_size) {
    fail(PF_PAIR_MISMATCH, where, ": the target's vocabulary has ", target, " tokens, the draft's ", draft,
         ", and they differ within the tokenizer's ", manifest.tokenizer_size, ": token ", std::min(target, draft),
         " is the first that only one of them has");
  }
  const std::vector<int32_t>& ids = manifest.draft->logit_ids;
  if (!ids.empty() && ids.back() >= manifest.tokenizer_size) {
    fail(PF_BUNDLE_CORRUPT, where, ": the draft scores token ", ids.back(), ", the tokenizer has ",
         manifest.tokenizer_size);
  }
}

Manifest parse(const Json& json, const std::filesystem::path& folder) {
  const std::string where = (folder / "manifest.json").string();
  const Node root(json, where + ": manifest");
  const std::string format = root.text("format");
  if (format != "pilotfish-bundle") root.wrong("format", "\"pilotfish-bundle\"", format);
  const int64_t version = root.integer("format_version", 0);
  if (version != kBundleFormatVersion) {
    fail(PF_BUNDLE_VERSION, where, ": format version ", version, ", this pilotfish reads version ",
         kBundleFormatVersion, "; export the bundle again with this version");
  }
  const Node tokenizer = root.object("tokenizer");
  const Node models = root.object("models");
  Manifest manifest{.folder = folder,
                    .tokenizer = parse_file(tokenizer),
                    .tokenizer_size = static_cast<int32_t>(tokenizer.integer("size", 1)),
                    .eos_ids = {},
                    .target = parse_model(models.object("target")),
                    .draft = {}};
  if (manifest.target.num_logits < manifest.target.vocab_size) {
    models.object("target").wrong("num_logits", "vocab_size: a target scores every id", manifest.target.num_logits);
  }
  for (const int64_t id : tokenizer.integers("eos_ids", 0, std::numeric_limits<int32_t>::max())) {
    manifest.eos_ids.push_back(static_cast<int32_t>(id));
  }
  if (models.has("draft")) {
    manifest.draft = parse_model(models.object("draft"));
    check_pair(manifest, where);
  }
  return manifest;
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::filesystem::path& folder) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail(PF_BUNDLE_CORRUPT, (folder / "manifest.json").string(), ": not JSON: ", error.what());
  }
  return parse(json, folder);
}

uint64_t ModelEntry::pass_weight_bytes() const {
  const bool has_own_head =
      std::any_of(tensors.begin(), tensors.end(), [](const TensorEntry& tensor) { return tensor.name == "lm_head"; });
  uint64_t sum = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.type != TensorEntry::Type::kU8 || (has_own_head && tensor.name == "embedding")) continue;
    sum += tensor.num_bytes;
  }
  return sum;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "manifest.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(PF_FILE_MISSING, path.string(), ": cannot be read; is ", folder.string(), " a pilotfish bundle?");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) fail(PF_FILE_MISSING, path.string(), ": cannot be read");
  return parse_manifest(text, folder);
}

}  // namespace pilotfish
