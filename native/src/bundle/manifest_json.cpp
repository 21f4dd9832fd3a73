#include "bundle/manifest_json.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>
#include <string_view>

namespace pilotfish {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 44;

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

}  // namespace

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

// Bytes that two tensors had would count twice in a plan.
void require_apart(const Node& node, const std::vector<TensorEntry>& entries) {
  std::vector<const TensorEntry*> ordered;
  for (const TensorEntry& entry : entries) ordered.push_back(&entry);
  std::ranges::sort(ordered, {}, [](const TensorEntry* entry) { return entry->offset; });
  for (size_t i = 1; i < ordered.size(); ++i) {
    if (ordered[i]->offset < ordered[i - 1]->offset + ordered[i - 1]->num_bytes) {
      node.wrong("tensors", "tensors that do not overlap", ordered[i - 1]->name + " and " + ordered[i]->name);
    }
  }
}

std::vector<TensorEntry> parse_tensors(const Node& node, uint64_t file_bytes) {
  std::vector<TensorEntry> entries;
  std::set<std::string_view> names;
  const Json& tensors = node.array("tensors");
  entries.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Node tensor(tensors[i], node.where() + ".tensors[" + std::to_string(i) + "]");
    entries.push_back(parse_tensor(tensor, file_bytes));
    const std::string& name = entries.back().name;
    if (!names.insert(name).second) tensor.wrong("name", "a name of its own", name);
  }
  require_apart(node, entries);
  return entries;
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

std::string listed(const std::vector<std::string>& names, const char* last) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0 && i + 1 < names.size()) text.append(", ");
    if (i > 0 && i + 1 == names.size()) text.append(" ").append(last).append(" ");
    text.append(names[i]);
  }
  return text;
}

CacheType parse_cache_type(const Node& node) {
  const std::string name = node.text("cache_dtype");
  std::vector<std::string> names;
  for (const CacheType type : kCacheTypes) {
    if (name == name_of(type)) return type;
    names.emplace_back(name_of(type));
  }
  fail(PF_BUNDLE_VERSION, node.where(), ".cache_dtype is ", Node::shown(name), "; this pilotfish has caches of ",
       listed(names, "and"), ": export the bundle again with --cache-dtype f16 or int8");
}

}  // namespace pilotfish
