// The bundle's manifest.json as checked values. Knows the file's format (GRAPH.md), not what is done with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

enum class CacheType { kF16, kF32 };

struct ModelEntry {
  FileEntry graph;
  FileEntry weights;
  std::vector<TensorEntry> tensors;
  int32_t num_layers;
  int32_t hidden_size;
  int32_t intermediate_size;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t vocab_size;
  int32_t num_logits;  // a draft may leave out ids of its vocabulary
  int32_t max_positions;
  CacheType cache_type;
  std::vector<int32_t> logit_ids;  // [num_logits] the token of each logit, ascending; empty: logit j is about token j

  // Packed bytes that every pass reads. Of an embedding that is not the head too, it reads a row a token: not counted.
  uint64_t pass_weight_bytes() const;
};

struct Manifest {
  std::filesystem::path folder;
  FileEntry tokenizer;
  int32_t tokenizer_size;  // ids that the tokenizer knows; a model's vocabulary beyond them is padding
  std::vector<int32_t> eos_ids;
  ModelEntry target;
  std::optional<ModelEntry> draft;
};

// Reads and checks folder/manifest.json; the other files are only named by it.
// Throws PF_FILE_MISSING, PF_BUNDLE_CORRUPT, PF_BUNDLE_VERSION or PF_PAIR_MISMATCH.
Manifest read_manifest(const std::filesystem::path& folder);
Manifest parse_manifest(std::string_view text, const std::filesystem::path& folder);

}  // namespace pilotfish
