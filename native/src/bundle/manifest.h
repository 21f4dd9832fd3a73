// The bundle's manifest.json as checked values. Knows the file's format (GRAPH.md), not what is done with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cache_type.h"
#include "bundle/head_kind.h"

namespace pilotfish {

inline constexpr int kBundleFormatVersion = 1;

struct FileEntry {
  std::string file;  // relative to the bundle
  uint64_t num_bytes;
  std::string sha256;
};

struct TensorEntry {
  enum class Type { kU8, kF32 };

  std::string name;
  Type type;
  std::vector<int64_t> shape;
  uint64_t offset;  // in the weights file, a multiple of 4096
  uint64_t num_bytes;
};

// What a cache has of each slot, twice: a key and a value.
struct CacheShape {
  int32_t num_kv_heads;
  int32_t head_dim;

  bool operator==(const CacheShape&) const = default;
};

struct ModelEntry {
  FileEntry graph;
  FileEntry weights;
  std::vector<TensorEntry> tensors;
  int32_t num_layers;
  int32_t hidden_size;
  int32_t intermediate_size;
  int32_t num_heads;  // of the widest layer, as the two after it
  int32_t num_kv_heads;
  int32_t head_dim;
  std::vector<CacheShape> caches;  // by their number in the graph; fewer than layers where some share one
  int32_t vocab_size;
  int32_t num_logits;  // a draft may leave out ids of its vocabulary
  int32_t max_positions;
  CacheType cache_type;
  std::vector<int32_t> logit_ids;  // [num_logits] the token of each logit, ascending; empty: logit j is about token j
  std::vector<int32_t> taps;       // residual streams that the graph gives out for a head
  std::map<std::string, std::string>
      formats;  // of the packed weights by part: linear, embedding, lm_head; of linear all

  // Packed bytes that every pass reads. Of an embedding that is not the head too, it reads a row a token: not counted.
  uint64_t pass_weight_bytes() const;
};

// Of a head that has a decoder layer.
struct HeadCacheEntry {
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t max_positions;
  CacheType type;
};

// A tensor of a head's graphs that is one of the target's.
struct SharedTensor {
  std::string name;  // in the graphs
  TensorEntry target;
  std::string file;  // the target's weights
};

struct HeadEntry {
  HeadKind kind;
  std::map<std::string, FileEntry, std::less<>> graphs;  // by role
  FileEntry weights;
  std::vector<TensorEntry> tensors;
  std::vector<int32_t> taps;  // the target's
  int32_t num_predictions;    // tokens a path can have; 0: as many as the caller steps for
  int32_t state_size;
  int32_t num_logits;
  std::vector<int32_t> logit_ids;  // as a model's
  std::optional<HeadCacheEntry> cache;
  std::string format;  // of its own packed weights
  std::vector<SharedTensor> shared;

  // Packed bytes that a pass reads, as a model's.
  uint64_t pass_weight_bytes() const;
  int32_t num_taps() const noexcept { return static_cast<int32_t>(taps.size()); }
  // Whether it has a decoder layer, whose keys and values are cached.
  bool has_layer() const noexcept { return kind.graphs == HeadGraphs::kLayer; }
};

struct Manifest {
  std::filesystem::path folder;
  std::string sha256 = {};  // of manifest.json, which has the hashes of all other files
  FileEntry tokenizer;
  int32_t tokenizer_size;  // ids that the tokenizer knows; a model's vocabulary beyond them is padding
  std::vector<int32_t> eos_ids;
  ModelEntry target;
  std::optional<ModelEntry> draft;
  std::optional<HeadEntry> head;
};

// Reads and checks folder/manifest.json; the other files are only named by it.
// Throws PF_FILE_MISSING, PF_BUNDLE_CORRUPT, PF_BUNDLE_VERSION or PF_PAIR_MISMATCH.
Manifest read_manifest(const std::filesystem::path& folder);
Manifest parse_manifest(std::string_view text, const std::filesystem::path& folder);

}  // namespace pilotfish
