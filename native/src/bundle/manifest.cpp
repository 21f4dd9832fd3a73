#include "bundle/manifest.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/platform/text.h"
#include "base/sha256.h"
#include "base/token_tree.h"
#include "bundle/bundle_files.h"
#include "bundle/manifest_json.h"

namespace pilotfish {
namespace {

std::vector<int32_t> parse_taps(const Node& node, int32_t num_layers, int32_t hidden_size) {
  std::vector<int32_t> taps;
  for (const int64_t tap : node.integers("taps", 0, num_layers)) {
    if (std::ranges::find(taps, tap) != taps.end()) node.wrong("taps", "each stream once", taps);
    taps.push_back(static_cast<int32_t>(tap));
  }
  const int64_t most = kMostFeatures / hidden_size;
  if (static_cast<int64_t>(taps.size()) > most) {
    node.wrong("taps", "at most " + std::to_string(most) + " streams of hidden_size " + std::to_string(hidden_size),
               taps.size());
  }
  return taps;
}

// One a layer, unless the manifest lists them.
std::vector<CacheShape> parse_caches(const Node& node, const ModelEntry& model) {
  if (!node.has("caches")) return std::vector<CacheShape>(model.num_layers, {model.num_kv_heads, model.head_dim});
  std::vector<CacheShape> caches;
  const Json& listed = node.array("caches");
  if (listed.empty() || listed.size() > static_cast<size_t>(model.num_layers)) {
    node.wrong("caches", "1 to num_layers caches", listed.size());
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    const Node cache(listed[i], node.where() + ".caches[" + std::to_string(i) + "]");
    caches.push_back({cache.dim("num_kv_heads", model.num_kv_heads), cache.dim("head_dim", model.head_dim)});
  }
  return caches;
}

ModelEntry parse_model(const Node& node) {
  ModelEntry model{.graph = parse_file(node.object("graph")),
                   .weights = parse_file(node.object("weights")),
                   .tensors = {},
                   .num_layers = node.dim("num_layers", kMostLayers),
                   .hidden_size = node.dim("hidden_size", kMostFeatures),
                   .intermediate_size = node.dim("intermediate_size", kMostFeatures),
                   .num_heads = node.dim("num_heads", kMostHeads),
                   .num_kv_heads = node.dim("num_kv_heads", kMostHeads),
                   .head_dim = node.dim("head_dim", kMostHeadDim),
                   .caches = {},
                   .vocab_size = node.dim("vocab_size", kMostFeatures),
                   .num_logits = node.dim("num_logits", kMostFeatures),
                   .max_positions = node.dim("max_positions", kMostPositions),
                   .cache_type = parse_cache_type(node),
                   .logit_ids = {},
                   .taps = {},
                   .formats = {}};
  if (model.num_logits > model.vocab_size) {
    node.wrong("num_logits", "at most vocab_size " + std::to_string(model.vocab_size), model.num_logits);
  }
  model.caches = parse_caches(node, model);
  model.logit_ids = parse_logit_ids(node, model.num_logits, model.vocab_size);
  model.tensors = parse_tensors(node, model.weights.num_bytes);
  if (node.has("taps")) model.taps = parse_taps(node, model.num_layers, model.hidden_size);
  if (node.has("formats")) {
    const Node formats = node.object("formats");
    for (const std::string& part : formats.keys()) model.formats.emplace(part, formats.text(part.c_str()));
  }
  if (node.has("mixture")) {
    for (const std::string& format : node.object("mixture").keys()) {
      model.formats.emplace("linear (" + format + ")", format);
    }
  }
  return model;
}

HeadKind parse_head_kind(const Node& node) {
  const std::string text = node.text("kind");
  std::vector<std::string> names;
  for (const HeadKind& kind : kHeadKinds) {
    if (text == kind.name) return kind;
    names.emplace_back(kind.name);
  }
  node.wrong("kind", listed(names, "or"), text);
}

std::optional<HeadCacheEntry> parse_head_cache(const Node& node) {
  if (!node.has_value("cache")) return std::nullopt;
  const Node cache = node.object("cache");
  return HeadCacheEntry{.num_heads = cache.dim("num_heads", kMostHeads),
                        .num_kv_heads = cache.dim("num_kv_heads", kMostHeads),
                        .head_dim = cache.dim("head_dim", kMostHeadDim),
                        .max_positions = cache.dim("max_positions", kMostPositions),
                        .type = parse_cache_type(cache)};
}

// Which graphs the kind has, and whether a cache: what runs it relies on both.
void check_head_parts(const HeadEntry& head, const Node& node) {
  for (const std::string& role : graph_roles(head.kind.graphs, head.num_predictions)) {
    if (!head.graphs.contains(role)) node.wrong("graphs", "a graph " + role, node.object("graphs").keys());
  }
  if (head.has_layer() != head.cache.has_value()) {
    node.wrong("cache", head.has_layer() ? "a cache" : "null", head.has_layer() ? "null" : "one");
  }
  if (!head.has_layer() && head.num_predictions == 0) node.wrong("num_predictions", "at least 1", 0);
}

std::vector<SharedTensor> parse_shared(const Node& node, const HeadEntry& head, const ModelEntry& target) {
  std::vector<SharedTensor> shared;
  if (!node.has("shared")) return shared;
  const Node names = node.object("shared");
  for (const std::string& name : names.keys()) {
    const std::string of = names.text(name.c_str());
    const auto is_named = [](const std::string& wanted) {
      return [&wanted](const TensorEntry& tensor) { return tensor.name == wanted; };
    };
    const auto found = std::find_if(target.tensors.begin(), target.tensors.end(), is_named(of));
    if (found == target.tensors.end()) names.wrong(name.c_str(), "a tensor of the target", of);
    if (std::any_of(head.tensors.begin(), head.tensors.end(), is_named(name))) {
      names.wrong(name.c_str(), "a tensor that the head does not have itself", of);
    }
    shared.push_back({name, *found, target.weights.file});
  }
  return shared;
}

HeadEntry parse_head(const Node& node, const Manifest& manifest) {
  const ModelEntry& target = manifest.target;
  HeadEntry head{.kind = parse_head_kind(node),
                 .graphs = {},
                 .weights = parse_file(node.object("weights")),
                 .tensors = {},
                 .taps = parse_taps(node, target.num_layers, target.hidden_size),
                 .num_predictions = static_cast<int32_t>(node.integer("num_predictions", 0, TokenTree::kMaxTokens)),
                 .state_size = node.dim("state_size", kMostFeatures),
                 .num_logits = node.dim("num_logits", kMostFeatures),
                 .logit_ids = {},
                 .cache = parse_head_cache(node),
                 .format = node.text("format"),
                 .shared = {}};
  const Node graphs = node.object("graphs");
  for (const std::string& role : graphs.keys()) head.graphs.emplace(role, parse_file(graphs.object(role.c_str())));
  head.tensors = parse_tensors(node, head.weights.num_bytes);
  head.shared = parse_shared(node, head, target);
  head.logit_ids = parse_logit_ids(node, head.num_logits, manifest.tokenizer_size);
  if (head.taps.empty() || head.taps != target.taps) {
    node.wrong("taps", "the target's " + Json(target.taps).dump(), head.taps);
  }
  check_head_parts(head, node);
  if (head.cache && head.cache->max_positions < target.max_positions) {
    node.object("cache").wrong("max_positions", "at least the target's " + std::to_string(target.max_positions),
                               head.cache->max_positions);
  }
  return head;
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

// The ids that end the text. Those of begin and padding are of no use here, but of Python, and are checked too.
std::vector<int32_t> parse_special_ids(const Node& tokenizer, int32_t size) {
  for (const char* key : {"bos_id", "pad_id"}) {
    if (tokenizer.has_value(key)) tokenizer.integer(key, 0, size - 1);
  }
  const std::vector<int64_t> ids = tokenizer.integers("eos_ids", 0, size - 1);
  return {ids.begin(), ids.end()};
}

// A manifest nests 6 deep. What copies and prints JSON calls itself for each level, so that deeper ones end the stack.
constexpr int32_t kMostNesting = 32;
constexpr uint64_t kMostManifestBytes = uint64_t{16} << 20;  // lists of 262,144 ids have 2 MiB each

int32_t nesting_of(std::string_view text) noexcept {
  int32_t depth = 0, most = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if (c == '[' || c == '{') most = std::max(most, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return most;
}

Manifest parse(const Json& json, const std::filesystem::path& folder) {
  const std::string where = platform::text_of_path(folder / "manifest.json");
  const Node root(json, where + ": manifest");
  const std::string format = root.text("format");
  if (format != "pilotfish-bundle") root.wrong("format", "\"pilotfish-bundle\"", format);
  const int64_t version = root.integer("format_version", 0, std::numeric_limits<int32_t>::max());
  if (version != kBundleFormatVersion) {
    fail(PF_BUNDLE_VERSION, where, ": format version ", version, ", this pilotfish reads version ",
         kBundleFormatVersion, "; export the bundle again with this version");
  }
  const Node tokenizer = root.object("tokenizer");
  const Node models = root.object("models");
  const int32_t size = tokenizer.dim("size", kMostFeatures);
  Manifest manifest{.folder = folder,
                    .sha256 = {},
                    .tokenizer = parse_file(tokenizer),
                    .tokenizer_size = size,
                    .eos_ids = parse_special_ids(tokenizer, size),
                    .target = parse_model(models.object("target")),
                    .draft = {},
                    .head = {}};
  if (manifest.target.num_logits < manifest.target.vocab_size) {
    models.object("target").wrong("num_logits", "vocab_size: a target scores every id", manifest.target.num_logits);
  }
  if (size > manifest.target.vocab_size) {
    tokenizer.wrong("size", "at most the target's vocab_size " + std::to_string(manifest.target.vocab_size), size);
  }
  if (models.has("draft")) {
    manifest.draft = parse_model(models.object("draft"));
    check_pair(manifest, where);
  }
  if (root.has_value("head")) manifest.head = parse_head(root.object("head"), manifest);
  return manifest;
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::filesystem::path& folder) {
  const std::string where = platform::text_of_path(folder / "manifest.json");
  if (nesting_of(text) > kMostNesting) {
    fail(PF_BUNDLE_CORRUPT, where, ": is nested more than ", kMostNesting, " deep");
  }
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail(PF_BUNDLE_CORRUPT, where, ": not JSON: ", error.what());
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

uint64_t HeadEntry::pass_weight_bytes() const {
  uint64_t sum = 0, embeddings = 0;
  uint64_t num_outputs = 0;  // of stages one each: a pass runs one stage
  const auto add = [&](const std::string& name, const TensorEntry& tensor) {
    if (tensor.type != TensorEntry::Type::kU8) return;
    (name.starts_with("emb") ? embeddings : sum) += tensor.num_bytes;
    num_outputs += name.starts_with("lm_head") ? 1 : 0;
  };
  for (const TensorEntry& tensor : tensors) add(tensor.name, tensor);
  for (const SharedTensor& tensor : shared) add(tensor.name, tensor.target);
  if (num_outputs == 0) return sum + embeddings;  // the embedding is the output layer too
  return passes_are_stages(kind.graphs) ? sum / num_outputs : sum;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(folder / "manifest.json", error);
  if (!std::filesystem::exists(status)) {
    fail(PF_FILE_MISSING, platform::text_of_path(folder / "manifest.json"), ": cannot be read; is ",
         platform::text_of_path(folder), " a pilotfish bundle?");
  }
  const BundleFile file(folder, "manifest.json");
  if (file.num_bytes() > kMostManifestBytes) {
    fail(PF_BUNDLE_CORRUPT, platform::text_of_path(file.path()), ": has ", file.num_bytes(), " bytes, at most ",
         kMostManifestBytes, " are allowed");
  }
  std::string text(file.num_bytes(), '\0');
  file.read_exactly(reinterpret_cast<std::byte*>(text.data()), text.size());
  Manifest manifest = parse_manifest(text, folder);
  Sha256 hash;
  hash.update(text.data(), text.size());
  manifest.sha256 = hash.finish();
  return manifest;
}

}  // namespace pilotfish
