// A complete manifest of a pair that does not exist, and a way to break it.
#pragma once

#include <string>

#include "check.h"

namespace tiny {

inline const std::string kHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
inline const std::string kManifest = R"({
  "format": "pilotfish-bundle", "format_version": 1,
  "tokenizer": {"file": "tokenizer.json", "bytes": 10, "sha256": ")" +
                                     kHash +
                                     R"(", "size": 100, "eos_ids": [2, 7]},
  "models": {
    "target": {
      "graph": {"file": "target.onnx", "bytes": 10, "sha256": ")" +
                                     kHash + R"("},
      "weights": {"file": "target.bin", "bytes": 12288, "sha256": ")" +
                                     kHash + R"("},
      "tensors": [
        {"name": "layers.0.qkv", "dtype": "u8", "shape": [5000], "offset": 0, "bytes": 5000},
        {"name": "norm", "dtype": "f32", "shape": [8, 16], "offset": 8192, "bytes": 512}],
      "num_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16,
      "vocab_size": 104, "num_logits": 104, "max_positions": 2048, "cache_dtype": "f16"},
    "draft": {
      "graph": {"file": "draft.onnx", "bytes": 10, "sha256": ")" +
                                     kHash + R"("},
      "weights": {"file": "draft.bin", "bytes": 4096, "sha256": ")" +
                                     kHash + R"("},
      "tensors": [],
      "num_layers": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "num_kv_heads": 1, "head_dim": 16,
      "vocab_size": 128, "num_logits": 64, "max_positions": 2048, "cache_dtype": "f32"}}})";

// The same with a head of a kind; `parts` are the fields that differ by kind.
inline std::string with_head(const std::string& kind, const std::string& parts) {
  const std::string file = R"({"file": "head.bin", "bytes": 4096, "sha256": ")" + kHash + R"("})";
  std::string text = kManifest;
  text.pop_back();
  text += R"(, "head": {"kind": ")" + kind + R"(", "weights": )" + file +
          R"(, "tensors": [{"name": "w", "dtype": "f32", "shape": [4], "offset": 0, "bytes": 16}], "taps": [2],
          "state_size": 64, "num_logits": 104, "logit_ids": null, "format": "int8", )" +
          parts + "}}";
  for (const std::string graph : {"heads", "stage.0", "stage.1", "features", "step"}) {
    const std::string mark = "@" + graph + "@";
    if (const size_t at = text.find(mark); at != std::string::npos) {
      text.replace(at, mark.size(), "\"" + graph + "\": " + file);
    }
  }
  const size_t target = text.find("\"cache_dtype\": \"f16\"");
  return text.insert(target, "\"taps\": [2], ");
}

// `text` with the first `from` replaced, which must be there.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  CHECK(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace tiny
